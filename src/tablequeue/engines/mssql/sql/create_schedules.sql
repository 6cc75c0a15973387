-- The schedules of periodic pushes: for each, the last time it was due that was pushed. Made with the first schedule.
-- The name is the bytes of its text, as a key is (see create), and too long for a clustered key.
-- Under the creators' lock. A crash leaves nothing.
if object_id(N'{schedules}', N'U') is null
    create table {schedules} (
        name varbinary(1020) not null constraint pk_tq__schedules primary key nonclustered,
        last_due datetime2(6) not null
    );
