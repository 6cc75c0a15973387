-- From here on, a push to the queue notifies this session. The channel is heard by all queues of that name, in any
-- schema: a wake-up too many costs its hearer one look. The lock is what a push sees of those who wait, and it ends
-- with the session, however that ends. Locks: an advisory one, shared, which waits for nobody longer than a push
-- takes to look at it.
listen {table};
select pg_advisory_lock_shared({waiting_lock});
