-- From schema version 3 to 4: what belongs to a queue's table is named {table}__part, which is no queue's table.
-- The triggers are made again, by create_group_triggers, for their function names the table of the notes.
alter index if exists {queue}_front rename to {table}__front;
alter table if exists {queue}_turns rename to {table}__turns;
drop function if exists {queue}_turn() cascade;
