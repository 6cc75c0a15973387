-- From here on, a push to the queue notifies this session. Queues of that name in all schemas share the channel: a
-- needless wake-up costs a session one look. By the lock, a push sees that consumers wait; it ends with the session.
-- Locks: a shared advisory lock, which waits no longer than a push takes to test it.
listen {table};
select pg_advisory_lock_shared({waiting_lock});
