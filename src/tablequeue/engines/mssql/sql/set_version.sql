-- Enter the schema version of a queue in the catalogue, in the transaction that upgrades its tables.
update {catalogue} set schema_version = :schema_version where name = cast(:name as nvarchar(255));
