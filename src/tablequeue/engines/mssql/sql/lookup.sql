-- Read the definition and the schema version of a queue. Index: the primary key.
select definition, schema_version from {catalogue} where name = cast(:name as nvarchar(255));
