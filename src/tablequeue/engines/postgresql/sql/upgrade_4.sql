-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Of the procedures, those that take other parameters now are dropped; all are to be made again.
-- Locks: the table, for a moment. Runs in one transaction: a crash leaves version 3.
alter index if exists {queue}_ready rename to {table}__ready;
alter index if exists {queue}_scheduled rename to {table}__scheduled;
alter index if exists {queue}_in_progress rename to {table}__in_progress;
alter index if exists {queue}_dead rename to {table}__dead;
alter index if exists {queue}_blocked rename to {table}__blocked;
alter index if exists {queue}_key rename to {table}__key;
drop function if exists {queue}_sweep(float8, timestamptz);
drop function if exists {queue}_arrange(timestamptz);
-- [grouped]
-- The triggers are made again, by create_group_triggers, for their function names the table of the notes.
alter index if exists {queue}_front rename to {table}__front;
alter table if exists {queue}_turns rename to {table}__turns;
drop function if exists {queue}_turn() cascade;
-- [end]
-- [keep]
alter index if exists {queue}_finished rename to {table}__finished;
-- [end]
