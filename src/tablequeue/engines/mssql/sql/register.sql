-- Enter a queue in the catalogue, in the transaction that makes its tables.
insert into {catalogue} (name, definition, schema_version, created_at)
values (cast(:name as nvarchar(255)), cast(:definition as nvarchar(max)), :schema_version, {now});
