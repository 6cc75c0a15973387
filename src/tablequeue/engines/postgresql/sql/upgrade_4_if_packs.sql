-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
alter view {queue}_packed rename to {table}__packed;
alter index if exists {queue}_packs_lease rename to {table}__packs_lease;
alter table {queue}_packs rename to {table}__packs;
