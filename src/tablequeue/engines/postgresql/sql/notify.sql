-- Notify the consumers that wait at the queue, at the commit of this transaction; nothing if none waits. After a COPY.
-- :within a transaction of a caller's, which may last, and may be prepared, for which NOTIFY is forbidden, nobody is
-- notified here: then the answer is whether consumers wait. They are notified from another connection, at once, and
-- find by the lock that is taken here that a push is under way: they look again and again until it has ended.
-- Locks: advisory ones, which another reader or writer waits for no longer than a look at them takes.
select {waited_for};
