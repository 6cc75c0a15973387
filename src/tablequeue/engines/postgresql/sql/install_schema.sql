-- The schema of the queues, for a connection that names one. Before it, the same advisory lock as in install.
select pg_advisory_xact_lock(8318836321);
create schema if not exists {schema};
