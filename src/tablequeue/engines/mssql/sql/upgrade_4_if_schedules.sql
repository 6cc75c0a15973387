-- From schema version 3 to 4: the schedules are in {schedules}, which is no queue's table, and their names are bytes.
-- Only if there is such a table, and no queue has that name.
-- Locks: the table. In the transaction of the upgrade: a crash leaves what was there.
if object_id(N'{schedules}', N'U') is null
    create table {schedules} (
        name varbinary(1020) not null constraint pk_tq__schedules primary key nonclustered,
        last_due datetime2(6) not null
    );
if object_id(N'{prefix}tq_schedules', N'U') is not null
begin
    insert into {schedules} (name, last_due)
    select convert(varbinary(1020), old.name), old.last_due
    from {prefix}tq_schedules as old;
    drop table {prefix}tq_schedules;
end;
