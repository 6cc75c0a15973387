-- The rows that many processes write into a table of the user: the tables of the writes.

-- name: create_writes
-- The last batch of each writer that numbers its batches, so that a repeated one adds nothing; and the writes that have
-- a table of staged rows, so that what a crash left is found by its age.
-- Made at the first such write. Runs in one transaction: a crash leaves nothing.
create table if not exists {writers} (
    writer text primary key,
    batch integer not null
) strict, without rowid;
create table if not exists {writes} (
    write_id text primary key,
    made_at integer not null
) strict, without rowid;

-- name: create_rows
-- Where the tasks of the write :write stage their rows, with the affinities of the table of the user.
-- Locks: the database. Runs in one transaction: a crash leaves nothing.
insert into {writes} (write_id, made_at) values (:write, {now});
create table {rows} as select cast('' as text) as tq_attempt, {columns} from {into} limit 0;

-- name: old_writes
-- The writes that began a day ago or earlier, whose tables nobody needs any more. Locks: none.
select write_id from {writes} where made_at < {now} - 86400000000;
