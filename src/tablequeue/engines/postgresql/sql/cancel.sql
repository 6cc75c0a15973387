-- Cancel the messages of :ids. Those in progress are told to stop. The others leave the queue: they move to the history
-- as cancelled, or are deleted if the queue keeps none. Returns each message, and whether it was told.
-- Index: the primary key. Locks: the rows, in the order of their ids; it waits for claims and finishes under way, and
-- then sees the state that they left. A crash leaves all or nothing.
with message as materialized (
    select id, state from {queue} where id = any(cast(:ids as bigint[])) order by id for update
), told as (
    update {queue}
    set cancelled_at = coalesce(cancelled_at, {now})
    where id = any(array(select id from message where state = 'in_progress'))
    returning id
), gone as (
    delete from {queue}
    where id = any(array(select id from message where state <> 'in_progress'))
    returning *
-- [keep]
), kept as (
    insert into {history} (
        {history_row without token},
        outcome
    )
    select
        {history_row without token with finished_at = {now}},
        'cancelled'
    from gone
-- [end]
)
select id, true as told from told
union all
select id, false from gone;
