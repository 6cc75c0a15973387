-- The rows that many processes write into a table of the user: the tables of the writes, and COPY.

-- name: create_writes
-- The last batch of each writer that numbers its batches, so that a repeated one adds nothing; and the writes that have
-- a table of staged rows, so that what a crash left is found by its age.
-- Made at the first such write, under the creators' lock. Runs in one transaction: a crash leaves nothing.
create table if not exists {writers} (
    writer text primary key,
    batch bigint not null
);
create table if not exists {writes} (
    write_id text primary key,
    made_at timestamptz not null default statement_timestamp()
);

-- name: create_rows
-- Where the tasks of the write :write stage their rows, with the types of the table of the user: a value that does not
-- fit is refused in its task. A table of its own: to drop it costs nothing, to delete a million rows half a second.
-- Unlogged: a crash of the server empties it, and the write finds that rows are missing.
-- Locks: none that lasts. Runs in one transaction: a crash leaves nothing.
insert into {writes} (write_id) values (:write);
create unlogged table {rows} as select cast('' as text) as tq_attempt, {columns} from {into} with no data;

-- name: stage_rows
-- Rows come as COPY's text, each with its attempt. Locks: none that another transaction waits for.
-- A crash leaves the table of the write for a day: see drop_rows.
copy {rows} ({columns}, tq_attempt) from stdin;

-- name: old_writes
-- The writes that began a day ago or earlier, whose tables nobody needs any more. Locks: none.
select write_id from {writes} where made_at < {now} - interval '1 day';

-- name: drop_rows
-- Drop the table of the write :write, whose rows were put, or never will be. A task that is suspended in the middle of a
-- copy may have it locked for ever: after a second it stays, and a write drops it a day later, as after a crash.
select set_config('lock_timeout', '1000', true);
drop table if exists {rows};
delete from {writes} where write_id = :write;
