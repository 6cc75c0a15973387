-- Move the next :n messages of the log to the queue of an ordered subscription, and the position past them. Nothing is
-- moved if another session does it just now, and has the lock of the first range.
-- The range is found as by range_claim, which has the statement for the runs. :ids are those of its messages.
-- Indexes: the primary keys. Locks: the rows. A crash leaves all or nothing.
select id from {ranges} where id = 1 for update skip locked;
insert into {ranges} (id, first_offset, last_offset, messages, ids_sum, pieces, popped_at, finished_at)
select
    last_insert_id(id + 1), begins, ends, 0, 0,
    concat('[', group_concat('[', low, ',', high, ']' order by first_offset), ']'), {now}, {now}
from (
    select
        id, begins, ends, first_offset, run.low + greatest(begins - first_offset, 0) as low,
        least(run.high, run.low + ends - first_offset) as high
    from (
        select
            id, greatest(last_offset + 1, :first_offset) as begins,
            least(greatest(last_offset + 1, :first_offset) + :n - 1, :end) as ends
        from {ranges} order by id desc limit 1
    ) as last
    straight_join {run}
) as piece
where low <= high
group by id, begins, ends
having sum(high - low + 1) = ends - begins + 1;
select pieces from {ranges} where id = last_insert_id();
delete {history} from {given} straight_join {history} force index (primary) on {history}.id = given.id;
insert into {queue} (id, state, pushed_at, group_key, producer, headers, payload)
select log.id, '{pushed_ready}', log.pushed_at, log.group_key, log.producer, log.headers, log.payload
from {given} straight_join {log} as log force index (primary) on log.id = given.id
on duplicate key update id = {queue}.id;
