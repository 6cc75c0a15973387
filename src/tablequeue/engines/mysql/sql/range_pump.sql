-- Move the next :n messages of the log to the queue of an ordered subscription, and the position past them. Nothing is
-- moved if another session does it just now, and has the lock of the first range.
-- Indexes: the primary keys. Locks: the rows. A crash leaves all or nothing.
select id from {ranges} where id = 1 for update skip locked;
insert into {ranges} (id, first_offset, last_offset, messages, ids_sum, pieces, popped_at, finished_at)
with found as (
    select
        (select id + 1 from {ranges} order by id desc limit 1) as id,
        greatest(
            (select last_offset + 1 from {ranges} order by id desc limit 1),
            (select first_offset + 1 from {runs} order by first_offset limit 1)
        ) as begins,
        (select first_offset + last_id - first_id from {runs} order by first_offset desc limit 1) as ends
), bounds as (
    select id, begins, least(ends, begins + :n - 1) as ends from found where ends >= begins
), piece as (
    select
        bounds.id, begins, ends, first_offset, first_id + greatest(begins - first_offset, 0) as low,
        least(last_id, first_id + ends - first_offset) as high
    from bounds straight_join {runs} force index (primary) on first_offset between coalesce(
        (
            select first_offset from {runs}
            where first_offset <= (select last_offset + 1 from {ranges} order by id desc limit 1)
            order by first_offset desc limit 1
        ),
        0
    ) and ends
)
select
    last_insert_id(id), begins, ends, 0, 0,
    concat('[', group_concat('[', low, ',', high, ']' order by first_offset), ']'), {now}, {now}
from piece
where low <= high
group by id, begins, ends;
delete {history}
from {ranges} as moved force index (primary)
straight_join json_table(moved.pieces, '$[*]' columns (low bigint path '$[0]', high bigint path '$[1]')) as piece
straight_join {history} force index (primary) on {history}.id between piece.low and piece.high
where moved.id = last_insert_id();
insert into {queue} (id, state, pushed_at, group_key, producer, headers, payload)
select log.id, '{pushed_ready}', log.pushed_at, log.group_key, log.producer, log.headers, log.payload
from {ranges} as moved force index (primary)
straight_join json_table(moved.pieces, '$[*]' columns (low bigint path '$[0]', high bigint path '$[1]')) as piece
straight_join {log} as log force index (primary) on log.id between piece.low and piece.high
where moved.id = last_insert_id()
on duplicate key update id = {queue}.id;
