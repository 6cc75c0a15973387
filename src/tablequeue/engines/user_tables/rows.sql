-- The rows that many processes write into a table of the user: staged, put, dropped.

-- name: stage_rows
-- Stage one row of an attempt; the engine repeats it. Locks: none that another transaction waits for; on SQLite the
-- database. A crash leaves the table of the write for a day: see drop_rows.
insert into {rows} (tq_attempt, {columns}) values (:attempt, {values});

-- name: staged_rows
-- Count the rows that the :attempts staged. It reads the whole table of the write. Locks: none.
select count(*) from {rows} where {of_attempts};

-- name: keys_twice
-- Up to five keys that more than one of the rows that the :attempts staged has. It reads the whole table of the write.
-- Locks: none.
select {key} from {rows} where {of_attempts} group by {key} having count(*) > 1 order by {key} limit 5;

-- name: insert_rows
-- Put the rows that the :attempts staged into the table of the user. Locks: the new rows, until the transaction ends.
-- One transaction with writer_advance: a crash puts none.
insert into {into} ({columns}) select {columns} from {rows} where {of_attempts};

-- name: upsert_rows
-- Put the rows that the :attempts staged into the table of the user: a row with the same key gets their values, and
-- keeps its other columns. Index: the unique one of the key. Locks: the rows, until the transaction ends.
-- One transaction with writer_advance: a crash puts none. `where`: SQLite takes `on` for a join without it.
insert into {into} ({columns}) select {columns} from {rows} where {of_attempts}
on conflict ({key}) do update set {sets};

-- name: drop_rows
-- Drop the table of the write :write, whose rows were put, or never will be. It waits for a task that stages just now.
-- A crash leaves it, and a write drops it a day later: see old_writes.
drop table if exists {rows};
delete from {writes} where write_id = :write;
