-- Whether there is a table :table in the schema of the queues.
select count(*) from information_schema.tables where table_schema = {database} and table_name = :table;
