-- Delete a message from the history that was taken in this transaction and is put back; see put_back.
-- Index: the primary key. Locks: the row. A crash before the commit leaves it where it was before it was taken.
delete from {history} where id = :id;
