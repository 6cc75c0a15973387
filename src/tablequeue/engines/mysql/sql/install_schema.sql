-- The database of the queues, for a connection that names one: what MySQL calls a schema is a database.
create database if not exists {schema};
