-- Move the next :n messages of the log to the queue of an ordered subscription, and the position past them. Nothing is
-- moved if another session does it just now, which :pumping tells.
-- Indexes: the primary keys. Locks: an advisory one of the subscription. A crash leaves all or nothing.
with bounds as (
    select
        greatest(
            (select last_offset + 1 from {ranges} order by id desc limit 1),
            (select min(first_offset) + 1 from {runs})
        ) as begins,
        (select first_offset + last_id - first_id from {runs} order by first_offset desc limit 1) as ends
), moved as (
    insert into {ranges} (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
    select begins, least(begins + :n - 1, ends), 0, 0, {now}, {now} from bounds where begins <= ends
    returning first_offset, last_offset
), messages as materialized (
    select log.*
    from moved
    join {runs} as run
        on run.first_offset >= (select max(first_offset) from {runs} where first_offset <= moved.first_offset)
            and run.first_offset <= moved.last_offset
    join {log} as log on log.id
        between run.first_id + greatest(moved.first_offset - run.first_offset, 0)
        and least(run.last_id, run.first_id + moved.last_offset - run.first_offset)
), there as (
    delete from {history} where id = any(array(select id from messages))
)
insert into {queue} (id, state, pushed_at, group_key, producer, headers, payload)
select id, '{pushed_ready}', pushed_at, group_key, producer, headers, payload from messages
on conflict (id) do nothing;
