-- The creator's lock: one at a time makes or drops queues in a database. 1 if it was had within a minute.
-- It belongs to the connection, not to a transaction, for each DDL commits; a crash of the client frees it.
-- Hashed, for a lock's name may have 64 characters, and so may a database's.
select get_lock(concat('tablequeue.', md5(coalesce({database}, ''))), 60);
