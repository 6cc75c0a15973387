-- The schedules of periodic pushes: for each, the last time it was due that was pushed. Made with the first schedule.
-- The name is the bytes of its text, as a key is (see create), and too long for a clustered key.
-- The application lock lets one creator at a time through, as in install. A crash leaves nothing.
declare @granted int;
exec @granted = sp_getapplock
    @Resource = N'tablequeue', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
if @granted = -999
    throw 51001, N'There is no transaction. Give the text one: begin it, run all of this, and commit.', 1;
if @granted < 0
    throw 51000, N'tablequeue: another program is creating or dropping queues in this database', 1;
if object_id(N'{schedules}', N'U') is null
    create table {schedules} (
        name varbinary(1020) not null constraint pk_tq__schedules primary key nonclustered,
        last_due datetime2(6) not null
    );
