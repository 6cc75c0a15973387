-- The log of a topic. Its rows are never changed. One transaction writes at a time. So the ids have the order of the
-- commits, and no gaps: the offset of a message is its id.
-- Runs in one transaction: a crash leaves nothing.
create table {log} (
    id integer primary key autoincrement,
    pushed_at integer not null,
    producer text,
    group_key text,
    headers text check (headers is null or json_valid(headers)),
    payload {payload_type}
) strict;
