-- Advance the writer :writer to :batch. Returns a row, or none if that batch was written before.
-- Index: the primary key. Locks: the row, until the transaction ends, in which publish follows.
insert into {writers} (writer, batch) values (:writer, :batch)
on conflict (writer) do update set batch = excluded.batch where {table}__writers.batch < excluded.batch
returning batch;
