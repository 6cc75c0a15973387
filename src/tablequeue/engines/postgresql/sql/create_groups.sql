-- What a grouped queue has in addition: its messages are pushed as blocked, and one of each group, the head, is not.
-- The unique index holds that promise: one message of a group at most is ready, scheduled or in progress. Those of a
-- run are in progress together: in_run is the id of the message if it was claimed in a run, else 0. In an open run it
-- is minus the id: such a message holds up those behind it, and not those before it. So a message becomes the head if
-- no head of its group has an in_run above minus its own id.
-- The table has the notes of the triggers, which promote reads; see create_group_triggers.
alter table {queue} add column in_run bigint not null default 0;
create unique index {table}__front on {queue} (group_key, in_run) where {head};
create table {turns} (
    id bigint generated always as identity primary key,
    group_key text not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
