-- The deduplication keys of a queue whose keys stay taken for a time: the message that took each, and until when. A row
-- is there from the push on, finished or not, until a sweep deletes it. The token names the call that took the key.
-- A crash leaves nothing.
create table {keys} (
    dedup_key text constraint {table}__keys_key primary key,
    token uuid not null,
    id bigint,
    taken_until timestamptz not null
);
create index {table}__keys_until on {keys} (taken_until);
