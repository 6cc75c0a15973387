-- The streams that read a queue: for each the batch that it claimed last, under which token, and the last one that is
-- completed. They differ by one at most. `epoch` counts its runs, and fences all but the last.
-- `failures`: of the messages of that batch, by id, those that a stage could not process, with the error; JSON.
-- The name is the bytes of its text, as a key is (see create), and too long for a clustered key.
-- Made when the first stream begins, under the creators' lock. Runs in one transaction: a crash leaves nothing.
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
