-- Claim the next range of up to :n messages under a new lease: one row for all of them. Nothing if there are fewer than
-- :least. Three round trips in autocommit: the runs; the new row and a look at it; and the messages, without a lock.
-- The first statement finds runs from :start on, which is a guess of the position, and the first offset of the log. The
-- runs come back as :runs, and :end is their last offset. No run ever gives an offset another id, so it does not matter
-- how old they are. If they do not have all of the range, nothing is claimed.
-- The id of a range is that of the last one plus one. If another session has claimed it meanwhile, that is a duplicate
-- key, and the insert is repeated. It reads without locks, at READ COMMITTED.
-- Each piece of ids of the range repeats the condition of the last statement.
-- Indexes: the primary keys. Locks: the new row.
-- A consumer that dies leaves its range in progress; sweep sets its messages apart when the lease has expired.
(
    select first_offset, first_id, last_id, (select min(first_offset) + 1 from {runs})
    from {runs} where first_offset <= :start order by first_offset desc limit 1
)
union all
(
    select first_offset, first_id, last_id, (select min(first_offset) + 1 from {runs})
    from {runs} where first_offset > :start order by first_offset limit :look
);
insert into {ranges} (
    id, first_offset, last_offset, messages, ids_sum, pieces, token, consumer, popped_at, lease_until
)
select
    last_insert_id(id + 1), begins, ends, ends - begins + 1, sum((low + high) * (high - low + 1) div 2),
    concat('[', group_concat('[', low, ',', high, ']' order by first_offset), ']'),
    :token, :consumer, {now}, {now} + interval :lease second
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
where low <= high and ends - begins + 1 >= :least and {unpaused}
group by id, begins, ends
having sum(high - low + 1) = ends - begins + 1;
select pieces, last_offset, cast(popped_at as char), cast(lease_until as char)
from {ranges}
where id = last_insert_id() and token = :token;
select
    {claimed with
        attempts = 1
        pushed_at = cast(pushed_at as char)
        popped_at = :popped_at
        lease_until = :lease_until
        priority = 0
        dedup_key = null
        due_at = null
        errors = null}
from {log} force index (primary)
where id between :low and :high;
