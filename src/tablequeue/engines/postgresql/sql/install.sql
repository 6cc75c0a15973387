-- The catalogue: one row a queue, with its definition as JSON and the version of its tables.
-- Under the creators' lock. A crash leaves nothing.
create table if not exists {catalogue} (
    name text constraint tq__queues_name primary key,
    definition text not null,
    schema_version integer not null,
    created_at timestamptz not null
);
