-- The catalogue of queues, its entries, and pauses.

-- name: lock
-- The creators' lock: one at a time makes tables in a database, until its transaction ends; without a transaction it
-- is refused (-999). IF OBJECT_ID ... IS NULL alone lets two through at once, and no row lock can say it: there is no
-- row yet.
declare @granted int;
exec @granted = sp_getapplock
    @Resource = N'tablequeue', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
if @granted = -999
    throw 51001, N'There is no transaction. Give the text one: begin it, run all of this, and commit.', 1;
if @granted < 0
    throw 51000, N'tablequeue: another program is creating or dropping queues in this database', 1;

-- name: has_table
-- Return whether the table :table exists, of those that the user has rights on. Its name has the schema before it.
select case when object_id(cast(:table as nvarchar(300)), N'U') is null then 0 else 1 end as there;

-- name: has_schema
-- Return whether the schema of the queues exists.
select case when schema_id(N'{schema}') is null then 0 else 1 end as there;

-- name: lookup
-- Index: the primary key.
select definition, schema_version from {catalogue} where name = cast(:name as nvarchar(255));

-- name: install
-- Under the creators' lock. A crash leaves nothing.
if object_id(N'{identity}', N'U') is null
    create table {identity} (
        id char(32) collate Latin1_General_100_BIN2 not null constraint pk_tq__identity primary key clustered
    );
insert into {identity} (id)
select lower(replace(convert(char(36), newid()), '-', '')) where not exists (select 1 from {identity});
if object_id(N'{catalogue}', N'U') is null
    create table {catalogue} (
        name nvarchar(255) collate Latin1_General_100_BIN2 not null constraint pk_tq_queues primary key clustered,
        definition nvarchar(max) not null,
        schema_version int not null,
        created_at datetime2(6) not null
    );
if object_id(N'{paused}', N'U') is null
    create table {paused} (
        name varchar(128) collate Latin1_General_100_BIN2 not null constraint pk_tq__paused primary key clustered,
        until datetime2(6) not null
    );
if object_id(N'{dropped}', N'U') is null
    create table {dropped} (
        name varchar(128) collate Latin1_General_100_BIN2 not null constraint pk_tq__dropped primary key clustered
    );

-- name: renew_identity
-- Locks: the row. A crash leaves the old one.
update {identity} set id = lower(replace(convert(char(36), newid()), '-', ''));

-- name: install_schema
-- The schema of the queues, for a connection that names one. CREATE SCHEMA must be the first statement of its batch,
-- hence the EXEC. Under the creators' lock. A crash leaves nothing.
if schema_id(N'{schema}') is null
    exec (N'create schema {quoted_schema}');

-- name: register
-- Enter a queue in the catalogue, in the transaction that makes its tables.
insert into {catalogue} (name, definition, schema_version, created_at)
values (cast(:name as nvarchar(255)), cast(:definition as nvarchar(max)), :schema_version, {now});

-- name: redefine
-- A crash leaves the old one.
update {catalogue} set definition = cast(:definition as nvarchar(max)) where name = cast(:name as nvarchar(255));

-- name: rename
update {catalogue}
set name = cast(:new_name as nvarchar(255)), definition = cast(:definition as nvarchar(max))
where name = cast(:name as nvarchar(255));

-- name: set_version
update {catalogue} set schema_version = :schema_version where name = cast(:name as nvarchar(255));

-- name: note_dropped
-- Note the table of a queue, in the transaction that drops it: nothing new gets its name.
insert into {dropped} (name)
select '{table}' where not exists (select 1 from {dropped} where name = '{table}');

-- name: unregister
-- Take a queue out of the catalogue, in the transaction that drops its tables.
delete from {catalogue} where name = cast(:name as nvarchar(255));

-- name: pause
-- If two sessions pause it at once, one of them gets a duplicate key, and repeats it.
-- Index: the primary key. Locks: the row. A crash leaves the queue as it was.
update {paused} set until = @until where name = '{table}';
if @@rowcount = 0
    insert into {paused} (name, until) values ('{table}', @until);
