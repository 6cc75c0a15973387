-- Notifications of consumers that wait.

-- name: notify
-- Notify waiting consumers of the queue at the commit of this transaction; do nothing if none waits. For use after a
-- COPY. :within a caller's transaction no consumer is notified here: the transaction may last long, and NOTIFY is
-- forbidden in one that will be prepared. Then the result tells whether consumers wait. They are notified at once from
-- another connection. The lock taken here shows them that a push is under way, and they poll until it has ended.
-- Locks: advisory ones, for which another transaction waits only for the length of a test.
select {waited_for};

-- name: attend
-- From here on, a push to the queue notifies this session. Queues of that name in all schemas share the channel: a
-- needless wake-up costs a session one look. By the lock, a push sees that consumers wait; it ends with the session.
-- Locks: a shared advisory lock, which waits no longer than a push takes to test it.
listen {table};
select pg_advisory_lock_shared({waiting_lock});

-- name: leave
-- This session no longer waits for the queue: pushes need not notify it.
select pg_advisory_unlock_shared({waiting_lock});
