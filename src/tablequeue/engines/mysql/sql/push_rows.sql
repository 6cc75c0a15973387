-- A bulk push: the engine repeats the row, up to a megabyte a statement. The rows of one INSERT ... VALUES get
-- consecutive ids in every innodb_autoinc_lock_mode; the first comes back with the answer.
-- More than one statement go in a transaction: all of the batch, or none.
insert into {queue} (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{expires_at})
values (:payload, :headers, :producer, :priority, :group, :key, :pushed_at, :due_at, :state);
