-- The finished messages of a queue. A row without finished_at was claimed and never acknowledged.
create table {history} (
    id bigint primary key,
    attempts integer not null,
    pushed_at timestamptz not null,
    due_at timestamptz,
    first_popped_at timestamptz,
    popped_at timestamptz,
    finished_at timestamptz,
    producer text,
    consumer text,
    headers json,
    errors jsonb,
    payload {payload_type} not null
);
