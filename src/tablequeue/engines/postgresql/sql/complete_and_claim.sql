-- Complete the messages of :ids that are held under :held. If these are all :number of them, claim up to :n ready
-- messages under a new lease, as claim does. One round trip and one flush for both.
-- Returns a row for each claimed message; or, if fewer were completed, one row with the ids of those.
-- Indexes: the primary key, {table}__ready. Locks: the rows. A crash leaves all of it or nothing.
with finished as (
    delete from {queue}
    where id = any(cast(:ids as bigint[])) and token = cast(:held as uuid)
    -- [keep]
    returning *
), kept as (
    insert into {history} (
        {history_row without token}
    )
    select
        {history_row without token with finished_at = {now}}
    from finished
    -- [end]
    -- [none]
    returning id
    -- [end]
), claimed as (
    update {queue}
    set state = 'in_progress',
        attempts = attempts + 1,
        token = cast(:token as uuid),
        consumer = cast(:consumer as text),
        popped_at = {now},
        first_popped_at = coalesce(first_popped_at, {now}),
        lease_until = {now} + cast(:lease as float8) * interval '1 second'
    -- [not fair]
    where {row} = any(array(
        select {row} from {queue}
        where {claimable}
        order by {order_by}
        limit case when (select count(*) from finished) = :number then :n else 0 end
        for update skip locked
    ))
    -- [end]
    -- [fair]
    where id = any(array(
        {in_turn_if_completed}
    ))
    -- [end]
    returning
        {claimed_names}{and_slot}
)
select *, null as finished from claimed
union all
select {claimed_nulls}{and_null}, array_agg(id) from finished
having count(*) < :number;
