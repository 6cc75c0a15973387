-- One queue's definition. Index: the primary key.
select definition, schema_version from {catalogue} where name = :name;
