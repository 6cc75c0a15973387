-- The catalogue: one row a queue, with its definition as JSON and the version of its tables.
-- The advisory lock (the number is tablequeue's own) lets one creator at a time through, until its transaction ends:
-- CREATE ... IF NOT EXISTS alone fails when two run at once. A crash leaves nothing.
select pg_advisory_xact_lock(8318836321);
create table if not exists {catalogue} (
    name text constraint tq__queues_name primary key,
    definition text not null,
    schema_version integer not null,
    created_at timestamptz not null
);
