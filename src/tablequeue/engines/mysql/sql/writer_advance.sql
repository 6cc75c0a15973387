-- The writer :writer is at :batch. The row is made if need be and locked; then it moves on, or it was there already:
-- that batch was written before.
-- Index: the primary key. Locks: the row, until the transaction ends, in which publish follows.
insert into {writers} (writer, batch) values (:writer, -1)
on duplicate key update batch = batch;
update {writers} set batch = :batch where writer = :writer and batch < :batch;
