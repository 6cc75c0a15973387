-- Where the tasks of a bulk write from many processes put their messages before all of them are pushed at once
-- (publish), and the last batch of each writer that numbers its batches, so that a repeated one adds nothing.
-- Unlogged: a crash of the server empties it, and publish finds that messages are missing.
-- No index: it holds the writes under way only, and each reads its own once.
-- Made at the first such write. Runs in one transaction: a crash leaves nothing.
create unlogged table if not exists {staged} (
    write_id text not null,
    attempt text not null,
    part integer not null,
    place bigint not null,
    payload {array_type} not null,
    headers text,
    priority integer,
    group_key text,
    dedup_key text,
    due_at timestamptz,
    staged_at timestamptz not null default statement_timestamp()
);
create table if not exists {writers} (
    writer text primary key,
    batch bigint not null
);
