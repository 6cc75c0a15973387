-- The catalogue: one row a queue, with its definition as JSON and the version of its tables.
-- The application lock lets one creator at a time through, until its transaction ends: IF OBJECT_ID ... IS NULL alone
-- lets two through at once. No row lock can say it: there is no row yet. Outside of a transaction it is refused (-999).
-- A crash leaves nothing.
declare @granted int;
exec @granted = sp_getapplock
    @Resource = N'tablequeue', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
if @granted = -999
    throw 51001, N'There is no transaction. Give the text one: begin it, run all of this, and commit.', 1;
if @granted < 0
    throw 51000, N'tablequeue: another program is creating or dropping queues in this database', 1;
if object_id(N'{catalogue}', N'U') is null
    create table {catalogue} (
        name varchar(48) collate Latin1_General_100_BIN2 not null constraint pk_tq_queues primary key clustered,
        definition nvarchar(max) not null,
        schema_version int not null,
        created_at datetime2(6) not null
    );
