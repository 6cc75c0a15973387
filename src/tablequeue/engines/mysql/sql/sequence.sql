-- Give the messages that have become visible their offsets: those above the last run, and those in the last :n holes.
-- Never in a transaction of a caller: at READ COMMITTED each statement sees what was committed before it began.
-- The first five statements are one round trip, and look without locks: at the number of the changes so far, which the
-- row of the id 0 has in last_id, at the last run, at the holes, and at the islands above the runs: ids without a gap.
-- The sixth one looks into the holes, each of which repeats its condition, from the last to the first. So if it sees a
-- message of a transaction, it sees those with lower ids, too, and gives all of them their offsets in the order of
-- their ids.
-- The part computes the new :runs; :ids, the first ids of the holes that were filled; and :pieces, the new holes. A run
-- that continues the last one makes it longer, unless that one tells what was dropped.
-- The other statements are one transaction and one round trip. If another session has changed something since the look,
-- :version is not the number any more, and they change nothing.
-- Indexes: the primary keys, {table}__last_id. Locks: the row of the id 0, for as long as the server needs. A crash
-- leaves all or nothing.
select last_id from {holes} where first_id = 0;
select first_offset, first_id, last_id, first_offset > (select min(first_offset) from {runs}),
    (select max(last_id) from {runs})
from {runs}
order by first_offset desc
limit 1;
select first_id, last_id from {holes} where first_id > 0 order by first_id desc limit :n;
select max(last_id) into @tq_highest from {runs};
select min(id) as low, max(id) as high
from (
    select id, id - row_number() over (order by id) as island
    from (
        select id from {log} force index (primary) where id > @tq_highest order by id limit 100000
    ) as fresh
) as numbered
group by island;
select id from {log} force index (primary) where id between :low and :high order by id limit 100000;
update {holes} set last_id = last_id - 1 where first_id = 0 and last_id = :version;
set @tq_first = row_count();
update {runs} set last_id = :last_id where first_offset = :first_offset and @tq_first;
insert into {runs} (first_offset, first_id, last_id)
select first_offset, low, high from {run} where @tq_first;
delete {holes} from {given} straight_join {holes} force index (primary) on {holes}.first_id = given.id
where @tq_first;
insert into {holes} (first_id, last_id, seen_at)
select low, high, utc_timestamp(6) from {piece} where @tq_first;
select @tq_first;
