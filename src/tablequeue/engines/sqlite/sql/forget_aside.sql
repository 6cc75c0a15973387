-- Delete the messages of :ids, which are in the other database by now, from those that were set aside.
-- Index: the primary key. Locks: the database. A crash leaves them, and the next move finds that they are there.
delete from {moving} where id in (select value from json_each(:ids));
