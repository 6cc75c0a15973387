-- Upgrades of tables of an older schema version.

-- name: set_version
-- Enter the schema version of a queue in the catalogue, in the transaction that upgrades its tables.
update {catalogue} set schema_version = :schema_version where name = :name;

-- name: upgrade_4_if_staged
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Only if there is such a table, and no queue has that name.
-- What bulk writes under way have staged is lost: they fail, and must be written again.
drop table {queue}_staged;

-- name: upgrade_4_if_streams
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Only if there is such a table, and no queue has that name.
alter table {queue}_streams rename to {table}__streams;

-- name: upgrade_4_if_writers
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Only if there is such a table, and no queue has that name.
alter table {queue}_writers rename to {table}__writers;
