-- Finish the pack that is held under :token, if :ids are all of its messages: they are deleted, for this queue keeps no
-- history. A row if there was one. Index: the primary key. Locks: the row. A crash finishes all or none.
delete from {packs}
where token = cast(:token as uuid) and ids = cast(:ids as bigint[])
returning size;
