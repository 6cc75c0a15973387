-- Give message :id, which waits, another due time or another :priority, or both; what is null stays as it is. Then it
-- is ready if it is due, else scheduled. One that is blocked stays so. The first statement tells whether it waits: the
-- number of rows of an update leaves out a row that stays the same.
-- Index: the primary key. Locks: the row; it waits for a claim under way. A crash leaves it as it was.
select id from {queue} where id = :id and state in ('ready', 'scheduled', 'blocked') for update;
update {queue}
set state = case
        when state = 'blocked' or (cast(:due as datetime(6)) is null and :delay is null) then state
        when coalesce(cast(:due as datetime(6)), {now} + interval :delay second) > {now} then 'scheduled'
        else 'ready'
    end,
    due_at = coalesce(cast(:due as datetime(6)), {now} + interval :delay second, due_at),
    priority = coalesce(:priority, priority)
where id = :id and state in ('ready', 'scheduled', 'blocked');
