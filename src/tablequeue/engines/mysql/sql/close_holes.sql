-- Close holes that no transaction will fill, so that sequence need not look at them: rows that are no messages take
-- their ids. An insert that got such an id before, and has not inserted its row, then gets a duplicate key, and is
-- repeated with another id. So nothing is lost, whatever has happened to it meanwhile.
-- A hole is found if it was seen a minute ago, and if it has no row, not even one that is not committed, or prepared
-- (READ UNCOMMITTED). Holes of more than 1,000 ids stay.
-- The third statement takes the lock of sequence. If one of the ids is taken by now, all is rolled back.
-- Indexes: the primary keys. Locks: the rows. A crash leaves all or nothing.
set transaction isolation level read uncommitted;
select hole.first_id, hole.last_id
from {holes} as hole
left join {log} as log force index (primary) on log.id between hole.first_id and hole.last_id
where hole.seen_at <= utc_timestamp(6) - interval 1 minute
    and hole.last_id between hole.first_id and hole.first_id + 999
    and log.id is null
limit 100;
select first_id from {holes} where first_id = 0 for update skip locked;
insert into {log} (id, payload) select id, '0' from {given};
delete {holes} from {piece} straight_join {holes} force index (primary) on {holes}.first_id = piece.low;
