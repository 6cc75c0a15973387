-- Whether the schema of the queues is there.
select to_regnamespace('{schema}') is not null;
