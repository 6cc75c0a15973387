-- Advance the writer :writer to :batch. The first statement inserts the row if it is missing, and locks it. The second
-- one changes no row if that batch was written before.
-- Index: the primary key. Locks: the row, until the transaction ends, in which publish follows.
insert into {writers} (writer, batch) values (:writer, -1)
on duplicate key update batch = batch;
update {writers} set batch = :batch where writer = :writer and batch < :batch;
