-- Complete the messages of :ids that are held under :token: they are deleted, because the queue keeps no history.
-- Index: the primary key. Locks: the database. A crash leaves all of them completed, or none.
delete from {queue}
where id in (select value from json_each(:ids)) and token = :token
returning id;
