-- Give message :id, which waits, another due time or another :priority, or both; what is null stays as it is. Then it
-- is ready if it is due, else scheduled. One that is blocked stays so. Returns as in push, whether consumers wait.
-- Index: the primary key. Locks: the row; it waits for a claim under way. A crash leaves it as it was.
with moved as (
    update {queue}
    set state = case
            when state = 'blocked' or (cast(:due as timestamptz) is null and cast(:delay as float8) is null) then state
            when coalesce(cast(:due as timestamptz), {now} + cast(:delay as float8) * interval '1 second') > {now}
                then 'scheduled'
            else 'ready'
        end,
        due_at = coalesce(
            cast(:due as timestamptz), {now} + cast(:delay as float8) * interval '1 second', due_at
        ),
        priority = coalesce(cast(:priority as integer), priority)
    where id = :id and state in ('ready', 'scheduled', 'blocked')
    returning id
)
select id, {waited_for} as waited_for from moved;
