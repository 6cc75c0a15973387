-- Close holes that no transaction will fill, so that sequence need not look at them: rows that are no messages take
-- their ids. An insert that got such an id before, and has not inserted its row, then gets a duplicate key, and is
-- repeated with another id. So nothing is lost, whatever has happened to it meanwhile.
-- A hole is closed if it was seen a minute ago, and if it has no row, not even one that is not committed, or prepared
-- (READ UNCOMMITTED). Holes of more than 1,000 ids stay.
-- Each hole repeats the condition of the fourth statement, before which the third one comes each time. The other ones
-- are one transaction and one round trip, as in sequence. If one of the ids is taken by now, all is rolled back.
-- Indexes: the primary keys. Locks: the rows, and that of sequence. A crash leaves all or nothing.
select last_id from {holes} where first_id = 0;
select first_id, last_id
from {holes}
where first_id > 0 and seen_at <= utc_timestamp(6) - interval 1 minute and last_id < first_id + 1000;
set transaction isolation level read uncommitted;
select id from {log} force index (primary) where id between :low and :high;
update {holes} set last_id = last_id - 1 where first_id = 0 and last_id = :version;
set @tq_first = row_count();
insert into {log} (id, payload) select id, '0' from {given} where @tq_first;
delete {holes} from {given} straight_join {holes} force index (primary) on {holes}.first_id = given.id
where @tq_first;
