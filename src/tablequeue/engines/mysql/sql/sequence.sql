-- Give the messages that have become visible their offsets: those above the last run, and those in the last :n holes.
-- In a transaction of its own at READ COMMITTED, where each statement sees what was committed before it began. The lock
-- comes before the look, and if another session has it, nothing is done.
-- The look returns the islands: ids without a gap, in one hole or above the last run (its last_id is null). It is one
-- statement, so the messages of one transaction get their offsets in the order of their ids.
-- The part computes the new :runs; :ids, the first ids of the holes that were filled; and :pieces, the new holes. A run
-- that continues the last one makes it longer, unless that one tells what was dropped.
-- Indexes: the primary keys, {table}__last_id. Locks: the row of the lock. A crash leaves all or nothing.
select first_id from {holes} where first_id = 0 for update skip locked;
select
    first_offset, first_id, last_id, first_offset > (select first_offset from {runs} order by first_offset limit 1)
from {runs}
order by first_offset desc
limit 1;
(
    select first_id, last_id, min(id) as low, max(id) as high
    from (
        select
            hole.first_id, hole.last_id, log.id,
            log.id - row_number() over (partition by hole.first_id order by log.id) as island
        from (select first_id, last_id from {holes} order by first_id desc limit :n) as hole
        straight_join {log} as log force index (primary) on log.id between hole.first_id and hole.last_id
    ) as late
    group by first_id, last_id, island
)
union all
(
    select after + 1, null, min(id), max(id)
    from (
        select id, after, id - row_number() over (order by id) as island
        from (
            select id, (select last_id from {runs} order by last_id desc limit 1) as after
            from {log} force index (primary)
            where id > (select last_id from {runs} order by last_id desc limit 1)
            order by id
            limit 100000
        ) as fresh
    ) as numbered
    group by after, island
);
update {runs} set last_id = :last_id where first_offset = :first_offset;
insert into {runs} (first_offset, first_id, last_id)
select first_offset, low, high from {run};
delete {holes} from {given} straight_join {holes} force index (primary) on {holes}.first_id = given.id;
insert into {holes} (first_id, last_id, seen_at)
select low, high, utc_timestamp(6) from {piece};
