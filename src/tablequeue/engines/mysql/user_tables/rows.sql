-- The rows that many processes write into a table of the user: the tables of the writes, and the upsert.

-- name: create_writes
-- The last batch of each writer that numbers its batches, so that a repeated one adds nothing; and the writes that have
-- a table of staged rows, so that what a crash left is found by its age. Names are binary, as in the tables of queues.
-- Made at the first such write. A DDL commits by itself: a crash leaves a table or none.
create table if not exists {writers} (
    writer varbinary(1020) not null primary key,
    batch bigint not null
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: writers of tables';
create table if not exists {writes} (
    write_id char(32) character set ascii collate ascii_bin not null primary key,
    made_at datetime(6) not null default current_timestamp(6)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: writes into tables';

-- name: create_rows
-- Where the tasks of the write :write stage their rows, with the types of the table of the user: a value that does not
-- fit is refused in its task. The join makes each column one that may be null: the default of a day that may not be is
-- the day 0, which a strict server refuses. A DDL commits by itself: a crash leaves the write noted, which is enough.
insert into {writes} (write_id) values (:write);
create table {rows} (
    tq_row bigint not null auto_increment primary key,
    tq_attempt char(32) character set ascii collate ascii_bin not null default ''
) engine = InnoDB, row_format = dynamic
select {columns} from (select 1 as tq_one) as one left join {into} on false limit 0;

-- name: upsert_rows
-- Put the rows that the :attempts staged into the table of the user: a row with the same key gets their values, and
-- keeps its other columns. Not `on duplicate key update`: that changes a row which has the same value in any unique
-- index. If others insert one of the keys in between, the two statements have fewer rows than were staged, or the
-- unique index refuses one; then they are repeated.
-- Index: the unique one of the key. Locks: the rows, until the transaction ends.
-- One transaction with writer_advance: a crash puts none.
-- name: upsert_rows.change
update {rows} as given join {into} as there on {same_key} set {sets} where given.{of_attempts};
-- name: upsert_rows.add
insert into {into} ({columns})
select {columns} from {rows} as given
where {of_attempts} and not exists (select 1 from {into} as there where {same_key});

-- name: old_writes
-- The writes that began a day ago or earlier, whose tables nobody needs any more. Locks: none.
select write_id from {writes} where made_at < {now} - interval 1 day;
