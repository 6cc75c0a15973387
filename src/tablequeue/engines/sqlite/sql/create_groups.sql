-- What a grouped queue has in addition: its messages are pushed as blocked, and one of each group, the head, is not.
-- The unique index holds that promise: one message of a group at most is ready, scheduled or in progress.
create unique index {table}__front on {queue} (group_key) where {head};
