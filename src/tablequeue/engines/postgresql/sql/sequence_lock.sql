-- Wait until no other session sequences the topic, and keep others from it until the transaction ends.
select pg_advisory_xact_lock({sequence_lock});
