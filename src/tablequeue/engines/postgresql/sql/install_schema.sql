-- The schema of the queues, for a connection that names one. Under the creators' lock. A crash leaves nothing.
create schema if not exists {schema};
