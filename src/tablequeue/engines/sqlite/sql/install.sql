-- The catalogue: one row a queue, with its definition as JSON and the version of its tables.
-- Locks: the caller's BEGIN IMMEDIATE lets one creator at a time through. A crash leaves nothing.
create table if not exists {catalogue} (
    name text primary key,
    definition text not null check (json_valid(definition)),
    schema_version integer not null,
    created_at integer not null
) strict, without rowid;
