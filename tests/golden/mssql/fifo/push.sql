-- A variable that begins with @p_ is a parameter; with --values there are examples, for sqlcmd.

-- Push one message: it is ready, or scheduled if it is due later.
-- Nothing is pushed if a live message has its @p_key. Index: tq_emails__key, for the key only. READCOMMITTEDLOCK: under
-- READ_COMMITTED_SNAPSHOT too, the look at the key waits for another transaction that is pushing the same one. If two
-- transactions look at the same moment, the unique index refuses the second insert (error 2601), and messages.py
-- returns that the key is taken.
-- A crash before the commit leaves nothing.
declare @payload nvarchar(max) = cast(@p_payload as nvarchar(max));
declare @headers nvarchar(max) = cast(@p_headers as nvarchar(max));
declare @producer nvarchar(512) = cast(@p_producer as nvarchar(512));
declare @priority int = @p_priority;
declare @group varbinary(1020) = convert(varbinary(1020), cast(@p_group as nvarchar(510)));
declare @key varbinary(1020) = convert(varbinary(1020), cast(@p_key as nvarchar(510)));
declare @delay float = cast(@p_delay as float);
declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
declare @due datetime2(6) = coalesce(cast(@p_due as datetime2(6)), dateadd(microsecond, cast(round((@delay - floor(@delay / 60) * 60) * 1e6, 0) as int),
    dateadd(minute, cast(floor(@delay / 60) as int), @now)));
insert into tq_emails (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state)
output inserted.id
select
    @payload, @headers, @producer, @priority, @group, @key, @now, @due,
    case when @due > @now then 'scheduled' else 'ready' end
where @key is null
    or not exists (
        select 1 from tq_emails as there with (readcommittedlock)
        where there.dedup_key = @key and there.dedup_key is not null
    );
