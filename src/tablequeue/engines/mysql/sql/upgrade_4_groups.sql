-- From schema version 3 to 4: what belongs to a queue's table is named {table}__part, which is no queue's table.
-- The triggers are made again, by create_group_triggers, for they name the table of the notes. The old ones go last, in
-- upgrade_4_triggers: until then they refuse every change, for that table has its new name. No change goes unnoted.
drop trigger if exists {queue}__pushed;
drop trigger if exists {queue}__left;
drop trigger if exists {queue}__moved;
alter table {queue} rename index {table}_front to {table}__front;
alter table {queue} rename index {table}_blocked to {table}__blocked;
