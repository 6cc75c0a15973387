-- What a grouped queue has in addition: its messages are pushed as blocked, and one of each group, the head, is not.
-- The unique index holds that promise: one message of a group at most is ready, scheduled or in progress.
-- The table has the notes of the triggers, which promote reads; see create_group_triggers.
create unique index {table}__front on {queue} (group_key) where {head};
create table {turns} (
    id bigint generated always as identity primary key,
    group_key text not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
