-- The catalogue of queues, its entries, and pauses.

-- name: lock
-- The creators' lock: one at a time makes or upgrades tables in a database, until its transaction ends; the number is
-- tablequeue's own. CREATE ... IF NOT EXISTS alone fails when two run at once.
select pg_advisory_xact_lock(8318836321);

-- name: has_table
-- Return whether the table :table exists, whose name may have the schema before it. A user that may not use that schema
-- gets an error.
select to_regclass(cast(:table as text)) is not null;

-- name: has_schema
-- Return whether the schema of the queues exists.
select exists (select from pg_namespace where nspname = '{schema}');

-- name: install
-- Under the creators' lock. A crash leaves nothing.
create table if not exists {identity} (id text constraint tq__identity_id primary key);
insert into {identity} (id)
select replace(cast(gen_random_uuid() as text), '-', '') where not exists (select from {identity});
create table if not exists {catalogue} (
    name text constraint tq__queues_name primary key,
    definition text not null,
    schema_version integer not null,
    created_at timestamptz not null
);
create table if not exists {paused} (
    name text constraint tq__paused_name primary key,
    until timestamptz not null
);
create table if not exists {dropped} (name text constraint tq__dropped_name primary key);

-- name: renew_identity
-- Locks: the row. A crash leaves the old one.
update {identity} set id = replace(cast(gen_random_uuid() as text), '-', '');

-- name: install_schema
-- The schema of the queues, for a connection that names one. Under the creators' lock. A crash leaves nothing.
create schema if not exists {quoted_schema};

-- name: note_dropped
-- Note the table of a queue, in the transaction that drops it: nothing new gets its name.
insert into {dropped} (name) values ('{table}') on conflict do nothing;

-- name: pause
-- Index: the primary key. Locks: the row. A crash leaves the queue as it was.
insert into {paused} (name, until) values ('{table}', cast(:until as timestamptz))
on conflict (name) do update set until = excluded.until;

-- name: limit_waits
-- A crash, and a rollback, leave the session as it was.
-- name: limit_waits.begin
select
    set_config('tablequeue.lock_timeout', current_setting('lock_timeout'), true),
    set_config('lock_timeout', '1000', true);
-- name: limit_waits.end
select set_config(
    'lock_timeout',
    coalesce(nullif(current_setting('tablequeue.lock_timeout', true), ''), current_setting('lock_timeout')),
    true
);
