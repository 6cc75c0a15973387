-- Give message :id, which waits, another due time or another :priority, or both; what is null stays as it is. Then it
-- is ready if it is due, else scheduled. One that is blocked stays so.
-- Index: the primary key. Locks: the database. A crash leaves it as it was.
update {queue}
set state = case
        when state = 'blocked' or coalesce(:due, :delay) is null then state
        when coalesce(:due, {now} + cast(:delay * 1000000 as integer)) > {now} then 'scheduled'
        else 'ready'
    end,
    due_at = coalesce(:due, {now} + cast(:delay * 1000000 as integer), due_at),
    priority = coalesce(:priority, priority)
where id = :id and state in ('ready', 'scheduled', 'blocked')
returning id;
