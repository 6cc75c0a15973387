-- The ids of messages of the log that no range of a subscription has: with an offset from the position :start on, in a
-- hole, or above the last id that has an offset. The first statement finds the position and that id, the second one the
-- runs, the third one the holes. The part computes the intervals of ids. Each of them repeats the condition of the last
-- two statements, one of which begins at the lowest id, and one at the highest.
-- Indexes: the primary keys, that of the runs by last_id. Locks: none.
select
    greatest(
        (select last_offset + 1 from {ranges} order by id desc limit 1),
        (select first_offset + 1 from {runs} order by first_offset limit 1)
    ),
    (select max(last_id) from {runs});
(
    select first_offset, first_id, last_id
    from {runs} where first_offset <= :start order by first_offset desc limit 1
)
union all
(
    select first_offset, first_id, last_id
    from {runs} where first_offset > :start
);
select first_id, last_id from {holes} where first_id > 0;
select id
from {log} force index (primary)
where (id between :low and :high) and pushed_at is not null
order by id
limit :n;
select id
from {log} force index (primary)
where (id between :low and :high) and pushed_at is not null
order by id desc
limit :n;
