-- From schema version 3 to 4: what belongs to a queue's table is named {table}__part, which is no queue's table.
-- The triggers are made again by create_group_triggers.
drop trigger if exists {table}_pushed;
drop trigger if exists {table}_moved;
drop trigger if exists {table}_left;
drop index if exists {table}_front;
create unique index if not exists {table}__front on {queue} (group_key) where {head};
