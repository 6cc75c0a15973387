-- Whether the schema of the queues is there.
select exists (select from pg_namespace where nspname = '{schema}');
