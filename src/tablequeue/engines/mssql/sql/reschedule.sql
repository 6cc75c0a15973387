-- Give message :id, which waits, another due time or another :priority, or both; what is null stays as it is. Then it
-- is ready if it is due, else scheduled. One that is blocked stays so.
-- Index: the primary key. Locks: the row; it waits for a claim under way. A crash leaves it as it was.
declare @id bigint = :id;
declare @priority int = :priority;
declare @delay float = cast(:delay as float);
declare @now datetime2(6) = {now};
declare @due datetime2(6) = coalesce(cast(:due as datetime2(6)), {now_and_delay});
update {queue} with (rowlock)
set state = case
        when state = 'blocked' or @due is null then state
        when @due > @now then 'scheduled'
        else 'ready'
    end,
    due_at = coalesce(@due, due_at),
    priority = coalesce(@priority, priority)
output inserted.id
where id = @id and state in ('ready', 'scheduled', 'blocked');
