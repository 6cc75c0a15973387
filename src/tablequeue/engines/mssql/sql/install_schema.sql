-- The schema of the queues, for a connection that names one. CREATE SCHEMA must be the first statement of its batch,
-- hence the EXEC. Under the creators' lock. A crash leaves nothing.
if schema_id(N'{schema}') is null
    exec (N'create schema {schema}');
