-- Drop messages that come before the offset :start: up to :n of them, in the order of the offsets.
-- The first two statements look without locks, as in sequence: the second one finds runs, of which the first one is the
-- last message that was dropped before. The part chooses :ids of messages, and computes :runs: the last message that is
-- dropped now, and what is left of a run. The others are one transaction and one round trip, and change nothing if
-- another session has given offsets meanwhile. They delete the messages, and replace the runs up to the offset
-- :last_offset by these.
-- Three of them are left out while there is more to drop. They find without locks, and delete, rows that have closed
-- holes, below all ids that are in runs or holes still; :highest is the highest id that was ever dropped. What is that
-- old is dropped, so nothing that was to be kept is lost if an insert has such an id, and has waited since then.
-- Indexes: the primary keys, {table}__last_id. Locks: the rows. A crash leaves all of a call, or nothing.
select last_id from {holes} where first_id = 0;
select first_offset, first_id, last_id from {runs} where first_offset < :start order by first_offset limit :n;
update {holes} set last_id = last_id - 1 where first_id = 0 and last_id = :version;
set @tq_first = row_count();
delete {log} from {given} straight_join {log} force index (primary) on {log}.id = given.id where @tq_first;
delete from {runs} where first_offset <= :last_offset and @tq_first;
insert into {runs} (first_offset, first_id, last_id)
select first_offset, low, high from {run} where @tq_first;
select least(
    :highest + 1,
    coalesce((select min(first_id) from {holes} where first_id > 0), :highest + 1),
    coalesce((
        select first_id from {runs} force index ({table}__last_id)
        where first_offset > :last_offset order by last_id limit 1
    ), :highest + 1)
) into @tq_lowest;
select json_arrayagg(id) into @tq_closed
from (
    select id from {log} force index (primary) where id < @tq_lowest and pushed_at is null order by id limit 10000
) as closed;
delete {log}
from json_table(@tq_closed, '$[*]' columns (id bigint path '$')) as given
straight_join {log} force index (primary) on {log}.id = given.id
where @tq_first;
select @tq_first;
