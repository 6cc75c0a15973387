-- Enter a queue in the catalogue, in the transaction that makes its tables.
insert into {catalogue} (name, definition, schema_version, created_at)
values (cast(:name as varchar(100)), cast(:definition as nvarchar(max)), :schema_version, {now});
