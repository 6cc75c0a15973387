-- Return whether the schema of the queues exists.
select case when schema_id(N'{schema}') is null then 0 else 1 end as there;
