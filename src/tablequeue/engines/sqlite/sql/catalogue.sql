-- The catalogue of queues, its entries, and pauses.

-- name: has_table
-- Return whether the table :table exists.
select exists (select 1 from sqlite_master where type = 'table' and name = replace(:table, '{prefix}', ''));

-- name: install
-- Locks: the caller's BEGIN IMMEDIATE lets one creator at a time through. A crash leaves nothing.
create table if not exists {identity} (id text primary key) strict, without rowid;
insert into {identity} (id) select lower(hex(randomblob(16))) where not exists (select 1 from {identity});
create table if not exists {catalogue} (
    name text primary key,
    definition text not null check (json_valid(definition)),
    schema_version integer not null,
    created_at integer not null
) strict, without rowid;
create table if not exists {paused} (
    name text primary key,
    until integer not null
) strict, without rowid;
create table if not exists {dropped} (name text primary key) strict, without rowid;

-- name: renew_identity
-- Locks: the database. A crash leaves the old one.
update {identity} set id = lower(hex(randomblob(16)));

-- name: note_dropped
-- Note the table of a queue, in the transaction that drops it: nothing new gets its name.
insert or ignore into {dropped} (name) values ('{table}');

-- name: pause
-- Index: the primary key. Locks: the row. A crash leaves the queue as it was.
insert into {paused} (name, until) values ('{table}', :until)
on conflict (name) do update set until = excluded.until;
