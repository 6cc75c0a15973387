-- The schedules of periodic pushes: for each, the last time it was due that was pushed. Made with the first schedule.
-- Under the creators' lock. A crash leaves nothing.
if object_id(N'{schedules}', N'U') is null
    create table {schedules} (
        name nvarchar(255) collate Latin1_General_100_BIN2 not null constraint pk_tq__schedules primary key clustered,
        last_due datetime2(6) not null
    );
