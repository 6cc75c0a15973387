-- Enter a queue in the catalogue, when all its tables are there: only now it is one.
insert into {catalogue} (name, definition, schema_version, created_at)
values (:name, :definition, :schema_version, {now});
