-- The streams that read a queue: for each the batch that it claimed last, under which token, and the last one that is
-- completed. They differ by one at most. `epoch` counts its runs, and fences all but the last.
-- `failures`: of the messages of that batch, by id, those that a stage could not process, with the error; JSON.
-- The name is the bytes of its text, as a key is (see create), and too long for a clustered key.
-- Made when the first stream begins. The application lock lets one creator at a time through, as in install.
-- Runs in one transaction: a crash leaves nothing.
declare @granted int;
exec @granted = sp_getapplock
    @Resource = N'tablequeue', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
if @granted = -999
    throw 51001, N'There is no transaction. Give the text one: begin it, run all of this, and commit.', 1;
if @granted < 0
    throw 51000, N'tablequeue: another program is creating or dropping queues in this database', 1;
if object_id(N'{streams}', N'U') is null
    create table {streams} (
        stream varbinary(1020) not null constraint pk_{table}__streams primary key nonclustered,
        epoch bigint not null,
        batch bigint not null,
        completed bigint not null,
        token uniqueidentifier null,
        claimed_at datetime2(6) null,
        failures nvarchar(max) not null
    );
