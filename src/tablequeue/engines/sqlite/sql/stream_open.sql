-- Begin a new run of the stream :stream, which fences the run before it. Index: the primary key. Locks: the database.
-- A crash before the commit leaves the run before as it was.
insert into {streams} (stream, epoch) values (:stream, 1)
on conflict (stream) do update set epoch = {table}__streams.epoch + 1;
