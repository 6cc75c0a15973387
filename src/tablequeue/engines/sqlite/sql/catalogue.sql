-- The catalogue of queues, its entries, and pauses.

-- name: create_paused
-- The tables whose claims are paused: their messages are not handed out until that time. Usually there is none.
-- Locks: the database. A crash leaves nothing.
create table if not exists {paused} (
    name text primary key,
    until integer not null
) strict, without rowid;

-- name: create_dropped
-- The tables of dropped queues, topics and subscriptions. Nothing new gets a table of such a name, so a process that
-- has a dropped queue open reaches no other one.
-- Locks: the database. A crash leaves nothing.
create table if not exists {dropped} (name text primary key) strict, without rowid;

-- name: has_table
-- Return whether the table :table exists.
select exists (select 1 from sqlite_master where type = 'table' and name = :table);

-- name: lookup
-- Read the definition and the schema version of a queue. Index: the primary key.
select definition, schema_version from {catalogue} where name = :name;

-- name: names
-- The names and entries of all queues, topics and subscriptions.
select name, definition from {catalogue};

-- name: dropped
-- The tables of all that was dropped.
select name from {dropped};

-- name: install
-- The catalogue: one row a queue, with its definition as JSON and the version of its tables.
-- Locks: the caller's BEGIN IMMEDIATE lets one creator at a time through. A crash leaves nothing.
create table if not exists {catalogue} (
    name text primary key,
    definition text not null check (json_valid(definition)),
    schema_version integer not null,
    created_at integer not null
) strict, without rowid;

-- name: unused
-- Fail if a dropped queue had this table: then another name has to be chosen. The library chooses one by itself, under
-- the creators' lock; this is for printed SQL. Index: the primary key.
insert into {dropped} (name) values ('{table}');
delete from {dropped} where name = '{table}';

-- name: register
-- Enter a queue in the catalogue, in the transaction that makes its tables.
insert into {catalogue} (name, definition, schema_version, created_at)
values (:name, :definition, :schema_version, {now});

-- name: redefine
-- Enter another definition of a queue in the catalogue, under the creators' lock. A crash leaves the old one.
update {catalogue} set definition = :definition where name = :name;

-- name: rename
-- Give a queue another name in the catalogue, and its definition. Its tables keep their names, so whoever has it open
-- goes on. Under the creators' lock. A topic and its subscriptions are renamed in one transaction: a crash leaves all
-- or nothing.
update {catalogue} set name = :new_name, definition = :definition where name = :name;

-- name: resume
-- Hand out the messages of the queue again. Index: the primary key. Locks: the row.
delete from {paused} where name = '{table}';

-- name: note_dropped
-- Note the table of a queue, in the transaction that drops it: nothing new gets its name.
insert or ignore into {dropped} (name) values ('{table}');

-- name: unregister
-- Take a queue out of the catalogue, in the transaction that drops its tables.
delete from {catalogue} where name = :name;

-- name: pause
-- Hand out no message of the queue until the time :until. Claims that have begun still end.
-- Index: the primary key. Locks: the row. A crash leaves the queue as it was.
insert into {paused} (name, until) values ('{table}', :until)
on conflict (name) do update set until = excluded.until;

-- name: paused
-- The time until which the claims of the queue are paused; no row if they are not. Index: the primary key. Locks: none.
select until from {paused} where name = '{table}' and until > {now};
