-- A bulk push to the log: the engine repeats the row, up to a megabyte a statement. The rows of one INSERT ... VALUES
-- get consecutive ids in every innodb_autoinc_lock_mode; the first comes back with the answer.
-- More than one statement go in a transaction: all of the batch, or none.
insert into {log} (payload, headers, producer, group_key, pushed_at)
values (:payload, :headers, :producer, :group, :pushed_at);
