-- Pushes into a queue.

-- name: push
-- Push one message: it is ready, or scheduled if it is due later. A duplicate-key error if a live message has its :key.
-- One statement in autocommit: one round trip. The id is the one that the driver gets back with the answer.
-- Locks: a key waits for another transaction that is pushing the same one. A crash before the commit leaves nothing.
insert into {queue} (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{extra})
values (
    :payload, :headers, :producer, :priority, :group, :key, {now},
    coalesce(cast(:due as datetime(6)), {now} + interval :delay second),
    case
        when coalesce(cast(:due as datetime(6)), {now} + interval :delay second) > {now} then '{pushed_scheduled}'
        else '{pushed_ready}'
    end{until}{in_batch}
);

-- name: push_clock
-- What a bulk push must know first: the time, and how far apart the ids of one statement are.
select {now}, @@auto_increment_increment;

-- name: push_rows
-- A bulk push: the engine repeats the row, up to a megabyte a statement. The rows of one INSERT ... VALUES get
-- consecutive ids in every innodb_autoinc_lock_mode; the first comes back with the answer.
-- More than one statement go in a transaction: all of the batch, or none.
insert into {queue} (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{extra})
values (:payload, :headers, :producer, :priority, :group, :key, :pushed_at, :due_at, :state);
