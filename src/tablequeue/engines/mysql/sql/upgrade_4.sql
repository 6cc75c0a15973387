-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Each statement commits by itself. An index that is not there is passed over: a crash may have come after its
-- statement.
alter table {queue} rename index {table}_state to {table}__state;
alter table {queue} rename index {table}_key to {table}__key;
-- [sorted]
alter table {queue} rename index {table}_ready to {table}__ready;
-- [end]
-- [grouped]
-- The triggers are made again, by create_group_triggers, for they name the table of the notes. The old ones go last, in
-- upgrade_4_triggers: until then they refuse every change, for that table has its new name. No change goes unnoted.
drop trigger if exists {queue}__pushed;
drop trigger if exists {queue}__left;
drop trigger if exists {queue}__moved;
alter table {queue} rename index {table}_front to {table}__front;
alter table {queue} rename index {table}_blocked to {table}__blocked;
-- [end]
-- [keep]
alter table {history} rename index {table}_finished to {table}__finished;
-- [end]
