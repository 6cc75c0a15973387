-- Streams: claims that a batch can be read from again.

-- name: drop_streams
-- Drop the tables that streams, bulk writes and moves made beside a queue, if there are any.
-- In one transaction with the queue: a crash leaves all or nothing. On MariaDB and MySQL each commits by itself, and
-- the next drop of this name drops what a crash leaves.
drop table if exists {streams};
drop table if exists {staged};
drop table if exists {writers};
drop table if exists {moving};
drop table if exists {moved};

-- name: writer_last
-- Index: the primary key. Locks: none.
select batch from {writers} where writer = :writer;

-- name: stream_open
-- Index: the primary key. Locks: the row, on SQLite the database.
-- A crash before the commit leaves the run before as it was.
insert into {streams} (stream, epoch) values (:stream, 1)
on conflict (stream) do update set epoch = {table}__streams.epoch + 1;

-- name: stream_lock
-- Index: the primary key. Locks: the row.
select epoch, batch, completed, token, failures
from {streams}
where stream = :stream
for update;

-- name: stream_set
-- Index: the primary key. A crash before the commit leaves it where it was, and its messages too.
update {streams}
set batch = :batch,
    completed = :completed,
    token = :claim,
    claimed_at = case when :claim is null then null else {now} end,
    failures = :failures
where stream = :stream;
