-- Whether the database of the queues is there, of those that the user has rights on.
select count(*) from information_schema.schemata where schema_name = {database};
