-- This session does not wait at the queue any more: for its sake no push need notify.
select pg_advisory_unlock_shared({waiting_lock});
