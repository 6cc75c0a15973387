-- Give the messages that have become visible their offsets; see create_topic. Then forget the holes that no transaction
-- can fill any more.
-- A transaction that pushes holds an intent lock on the log until it ends. So at a moment at which nobody has one,
-- which a shared lock on the table proves, all transactions that were given ids before have ended. The lock lasts for
-- one statement that reads one row. HOLDLOCK takes it under READ_COMMITTED_SNAPSHOT, too. It is not waited for: on a
-- busy topic the holes stay, which costs looks at them.
-- A hole must also have been seen a minute before: that the intent lock comes before the id is not documented.
-- Locks: those of create_topic; then the log, shared; then the holes. Never in a transaction of a caller.
declare @seen_before datetime2(6) = dateadd(minute, -1, sysutcdatetime());
declare @one bigint;
declare @quiet bit = 0;
exec {log}__sequence 1;
if @@trancount = 0
    and exists (select 1 from {holes} with (readpast, readcommittedlock) where seen_at < @seen_before)
begin
    set lock_timeout 0;
    begin try
        select top (1) @one = id from {log} with (tablock, holdlock);
        set @quiet = 1;
    end try
    begin catch
        set lock_timeout 5000;
        if error_number() <> 1222 throw;
    end catch;
    set lock_timeout 5000;
end;
if @quiet = 1
    delete top (1000) from hole
    from {holes} as hole with (rowlock, readpast, readcommittedlock)
    where hole.seen_at < @seen_before
        and not exists (
            select 1 from {log} as message with (forceseek, readcommittedlock)
            where message.id between hole.first_id and hole.last_id
        );
