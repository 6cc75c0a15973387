-- Return whether the schema of the queues exists.
select exists (select from pg_namespace where nspname = '{schema}');
