-- The catalogue of queues, its entries, and pauses.

-- name: lookup
-- Read the definition and the schema version of a queue. Index: the primary key.
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

-- name: unregister
-- Take a queue out of the catalogue, in the transaction that drops its tables; on MariaDB and MySQL before they are
-- dropped.
delete from {catalogue} where name = :name;

-- name: paused
-- The time until which the claims of the queue are paused; no row if they are not. Index: the primary key. Locks: none.
select until from {paused} where name = '{table}' and until > {now};

-- name: set_version
-- Enter the schema version of a queue in the catalogue, in the transaction that upgrades its tables.
update {catalogue} set schema_version = :schema_version where name = :name;
