-- The catalogue of queues, its entries, and pauses.

-- name: lookup
-- Index: the primary key.
select definition, schema_version from {catalogue} where name = :name;

-- name: names
-- The names and entries of all queues, topics and subscriptions.
select name, definition from {catalogue};

-- name: dropped
-- The tables of all that was dropped.
select name from {dropped};

-- name: identity
-- The identity of the database. One row.
select id from {identity};

-- name: unused
-- Fail if a dropped queue had this table: then another name has to be chosen. The library chooses one by itself, under
-- the creators' lock; this is for printed SQL. Index: the primary key.
insert into {dropped} (name) values ('{table}');
delete from {dropped} where name = '{table}';

-- name: register
-- Enter a queue in the catalogue, in the transaction that makes its tables; on MariaDB and MySQL when all of them are
-- there: only now it is a queue.
insert into {catalogue} (name, definition, schema_version, created_at)
values (:name, :definition, :schema_version, {now});

-- name: redefine
-- A crash leaves the old one.
update {catalogue} set definition = :definition where name = :name;

-- name: rename
update {catalogue} set name = :new_name, definition = :definition where name = :name;

-- name: resume
-- Hand out the messages of the queue again. Index: the primary key. Locks: the row.
delete from {paused} where name = '{table}';

-- name: unregister
-- Take a queue out of the catalogue, in the transaction that drops its tables; on MariaDB and MySQL before they are
-- dropped.
delete from {catalogue} where name = :name;

-- name: paused
-- The time until which the claims of the queue are paused; no row if they are not. Index: the primary key. Locks: none.
select until from {paused} where name = '{table}' and until > {now};

-- name: set_version
update {catalogue} set schema_version = :schema_version where name = :name;
