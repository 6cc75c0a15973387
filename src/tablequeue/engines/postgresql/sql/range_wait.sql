-- Wait for the lock of a subscription's claims, and hold it until the transaction ends.
select pg_advisory_xact_lock({range_lock});
