-- Notify the consumers that wait at the queue, at the commit of this transaction; nothing if none waits. After a COPY.
-- :within a transaction of a caller's no consumer is notified here: the transaction may last, and may be prepared, for
-- which NOTIFY is forbidden. Then the answer is whether consumers wait. They are notified from another connection, at
-- once. By the lock that is taken here they see that a push is under way, and look again until it has ended.
-- Locks: advisory ones, which another transaction waits for no longer than a test of them takes.
select {waited_for};
