-- From schema version 3 to 4: what belongs to a queue's table is named {table}__part, which is no queue's table.
alter view {queue}_packed rename to {table}__packed;
alter index if exists {queue}_packs_lease rename to {table}__packs_lease;
alter table {queue}_packs rename to {table}__packs;
