-- The schema of the queues, for a connection that names one. CREATE SCHEMA must be the first statement of its batch,
-- hence the EXEC. Before it, the same application lock as in install.
declare @waiting int;
exec @waiting = sp_getapplock
    @Resource = N'tablequeue', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
if @waiting = -999
    throw 51001, N'There is no transaction. Give the text one: begin it, run all of this, and commit.', 1;
if @waiting < 0
    throw 51000, N'tablequeue: another program is creating or dropping queues in this database', 1;
if schema_id(N'{schema}') is null
    exec (N'create schema {schema}');
