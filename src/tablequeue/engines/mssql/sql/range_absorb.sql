-- Delete the messages apart that a seek decides about: those that no consumer has had, whatever their offset, because
-- they are in the log; and those with an offset from :start on that the log still has, because they come again. With
-- :force, the latter even if they are in progress: their leases end. A message before :start that some consumer has had
-- stays, and so does one that the log does not have any more.
-- 1,000 a statement; see create. Each is asked again when it is locked: a consumer may have had one since it was found.
-- Indexes: the primary keys, that of the runs by last_id; all messages apart are read. Locks: the rows; locked rows are
-- skipped, and range_remaining finds them. In one transaction with range_seek.
declare @start bigint = :start;
declare @force bit = :force;
declare @deleted bigint = 1000;
declare @number bigint = 0;
declare @gone table (id bigint not null primary key);
insert into @gone (id)
select message.id
from {queue} as message with (readpast, readcommittedlock)
where (@force = 1 or message.state <> 'in_progress') and (message.first_popped_at is null or exists (
        select 1
        from (select top (1) first_offset, first_id from {runs} where last_id >= message.id order by last_id) as run
        where run.first_id <= message.id and run.first_offset + message.id - run.first_id >= @start
            and run.first_offset > (select min(every.first_offset) from {runs} as every)
    ));
while @deleted > 0
begin
    delete top (1000) from message
{note_deleted}    from {queue} as message with (rowlock, readpast, readcommittedlock, forceseek)
    where message.id in (select one.id from @gone as one) and (@force = 1 or message.state <> 'in_progress')
        and (message.first_popped_at is null or exists (
            select 1
            from (select top (1) first_offset, first_id from {runs} where last_id >= message.id order by last_id) as run
            where run.first_id <= message.id and run.first_offset + message.id - run.first_id >= @start
                and run.first_offset > (select min(every.first_offset) from {runs} as every)
        ));
    set @deleted = rowcount_big();
    set @number = @number + @deleted;
end;
select @number as deleted;
