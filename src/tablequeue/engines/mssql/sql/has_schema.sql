-- Whether the schema of the queues is there.
select case when schema_id(N'{schema}') is null then 0 else 1 end as there;
