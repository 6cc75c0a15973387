-- Complete the messages of :ids that are held under :token: they are deleted, because the queue keeps no history.
-- Index: the primary key. Locks: the rows. A crash leaves all of them completed, or none.
delete from {queue}
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
returning id;
