-- Try to get the lock of a subscription's claims until the transaction ends; return whether it was free.
select pg_try_advisory_xact_lock({range_lock});
