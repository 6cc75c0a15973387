-- What a grouped queue has in addition: its messages are pushed as blocked, and one of each group, the head, is not.
-- The unique index holds that promise: one message of a group at most is ready, scheduled or in progress. Those of a
-- run are in progress together: in_run is the id of the message if it was claimed in a run, else 0. In an open run it
-- is minus the id: such a message holds up those behind it, and not those before it. So a message becomes the head if
-- no head of its group has an in_run above minus its own id.
-- The table has the notes of the triggers, which promote reads; see create_group_triggers.
-- A crash before the end leaves tables that are not in the catalogue: see create.
alter table {queue}
    add column front varbinary(1020) generated always as (case when {head} then group_key end) stored,
    add column in_run bigint not null default 0,
    add unique key {table}__front (front, in_run),
    add key {table}__blocked (group_key, state, id);
create table {turns} (
    id bigint not null auto_increment primary key,
    group_key varbinary(1020) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: turns of {table}';
