-- This session no longer waits for the queue: pushes need not notify it.
select pg_advisory_unlock_shared({waiting_lock});
