-- Enter a queue in the catalogue, in the transaction that makes its tables.
insert into {catalogue} (name, definition, schema_version, created_at)
values (:name, :definition, :schema_version, {now});
