-- The creators' lock: one creator at a time creates or drops queues in a database. 1 if the lock was free within a
-- minute. It belongs to the connection, not to a transaction, because each DDL commits; a crash of the client frees it.
-- Its name is hashed: a lock's name is limited to 64 characters, and a database's name may have as many.
select get_lock(concat('tablequeue.', md5(coalesce({database}, ''))), 60);
