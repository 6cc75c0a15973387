-- The messages that left a queue. A row without finished_at was delivered at most once and is not completed (yet);
-- its token fences the completion.
-- The index is for retention, for lost messages, and for statistics over a time.
create table {history} (
    id bigint constraint {table}__history_id primary key,
    attempts integer not null,
    priority integer not null default 0,
    token uuid,
    pushed_at timestamptz not null,
    due_at timestamptz,
    first_popped_at timestamptz,
    popped_at timestamptz,
    finished_at timestamptz,
    outcome text,
    group_key text,
    dedup_key text,
    producer text,
    consumer text,
    headers json,
    errors jsonb,
    payload {payload_type} not null
);
create index {table}__finished on {history} (finished_at);
