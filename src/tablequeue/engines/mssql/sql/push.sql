-- Push one message: it is ready, or scheduled if it is due later. Nothing is pushed if a live message has its :key.
-- Index: {table}__key, for the key only. READCOMMITTEDLOCK: under READ_COMMITTED_SNAPSHOT too, the look at the key
-- waits for another transaction that is pushing the same one. If two transactions look at the same moment, the unique
-- index refuses the second insert (error 2601), and messages.py returns that the key is taken.
-- A crash before the commit leaves nothing.
declare @payload {payload_type} = cast(:payload as {payload_type});
declare @headers nvarchar(max) = cast(:headers as nvarchar(max));
declare @producer nvarchar(512) = cast(:producer as nvarchar(512));
declare @priority int = :priority;
declare @group varbinary(1020) = convert(varbinary(1020), cast(:group as nvarchar(510)));
declare @key varbinary(1020) = convert(varbinary(1020), cast(:key as nvarchar(510)));
declare @delay float = cast(:delay as float);
declare @now datetime2(6) = {now};
declare @due datetime2(6) = coalesce(cast(:due as datetime2(6)), {now_and_delay});
-- [expires]
declare @expires float = coalesce(cast(:expires as float), {expires});
-- [end]
insert into {queue} (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{expires_at})
{note_inserted}output inserted.id
select
    @payload, @headers, @producer, @priority, @group, @key, @now, @due,
    case when @due > @now then '{pushed_scheduled}' else '{pushed_ready}' end{until}
where @key is null
    or not exists (
        select 1 from {queue} as there with (readcommittedlock)
        where there.dedup_key = @key and there.dedup_key is not null
    );
