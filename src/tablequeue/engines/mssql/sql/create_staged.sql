-- Where the tasks of a bulk write from many processes put their messages before all of them are pushed at once
-- (publish), and the last batch of each writer that numbers its batches, so that a repeated one adds nothing.
-- Clustered on the write, in the order in which it is pushed: each write reads and deletes a range of its own, and
-- waits for none. Not unique: two attempts at a part have the same places. The second index finds keys that are there
-- twice.
-- No lock escalation: it would stop the other writes.
-- Made at the first such write. The application lock lets one creator at a time through, as in install.
-- Runs in one transaction: a crash leaves nothing.
declare @granted int;
exec @granted = sp_getapplock
    @Resource = N'tablequeue', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
if @granted = -999
    throw 51001, N'There is no transaction. Give the text one: begin it, run all of this, and commit.', 1;
if @granted < 0
    throw 51000, N'tablequeue: another program is creating or dropping queues in this database', 1;
if object_id(N'{staged}', N'U') is null
begin
    create table {staged} (
        write_id char(32) collate Latin1_General_100_BIN2 not null,
        attempt char(32) collate Latin1_General_100_BIN2 not null,
        part int not null,
        place bigint not null,
        priority int null,
        due_at datetime2(6) null,
        staged_at datetime2(6) not null,
        group_key varbinary(1020) null,
        dedup_key varbinary(1020) null,
        headers nvarchar(max) null,
        payload {staged_type} not null
    );
    alter table {staged} set (lock_escalation = disable);
    create clustered index {table}__staged_order on {staged} (write_id, part, place);
    create index {table}__staged_key on {staged} (write_id, dedup_key) where dedup_key is not null;
    create table {writers} (
        writer varbinary(1020) not null constraint pk_{table}__writers primary key nonclustered,
        batch bigint not null
    );
end;
