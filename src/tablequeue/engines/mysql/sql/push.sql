-- Pushes into a queue.

-- name: push
-- A duplicate-key error if a live message has its :key. Without a key it is one statement in autocommit, the insert;
-- with a key, a packet. One round trip.
-- Locks: a key waits for another transaction that is pushing the same one. A crash before the commit leaves nothing.
-- name: push.take
insert into {live_keys} (dedup_key, id) select :key, 0 from dual where :key is not null;
-- name: push.insert
insert into {queue} (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{extra})
values (
    :payload, :headers, :producer, :priority, :group, :key, {now},
    coalesce(cast(:due as datetime(6)), {now} + interval :delay second),
    case
        when coalesce(cast(:due as datetime(6)), {now} + interval :delay second) > {now} then '{pushed_scheduled}'
        else '{pushed_ready}'
    end{until}{in_batch}
);
-- name: push.note
update {live_keys} set id = last_insert_id() where dedup_key = :key;

-- name: push_clock
-- What a bulk push must know first: the time, and how far apart the ids of one statement are.
select {now}, @@auto_increment_increment;

-- name: push_rows
-- A bulk push: the engine repeats the row, up to a megabyte a statement. The rows of one INSERT ... VALUES get
-- consecutive ids in every innodb_autoinc_lock_mode; the first comes back with the answer.
-- More than one statement go in a transaction: all of the batch, or none.
insert into {queue} (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{extra})
values (:payload, :headers, :producer, :priority, :group, :key, :pushed_at, :due_at, :state);

-- name: push_keys
-- The keys of a bulk push: the engine repeats the row. In the transaction of push_rows, before it.
-- Locks: as push.
insert into {live_keys} (dedup_key, id) values (:key, 0);

-- name: note_live_keys
-- Note the ids of the messages that push_rows has pushed with keys: :taken is a JSON array of [key, id]. In its
-- transaction. Index: the primary key. Locks: the rows, which this transaction has.
update json_table(:taken, '$[*]' columns (
    dedup_key varchar(255) character set utf8mb4 path '$[0]', id bigint path '$[1]'
)) as given
straight_join {live_keys} as live force index (primary) on live.dedup_key = cast(given.dedup_key as binary)
set live.id = given.id;
