-- Drop messages that come before the offset :start: up to :n of them, in the order of the offsets.
-- The first statement finds runs; the first of them is the last message that was dropped before. The part chooses
-- :ids of messages, and computes :runs: the last message that is dropped now, and what is left of a run. The other
-- statements delete the messages, and replace the runs up to the offset :last_offset by these. All of it is under the
-- lock of sequence.
-- Indexes: the primary keys. Locks: the rows. A crash leaves all of a call, or nothing.
select first_offset, first_id, last_id from {runs} where first_offset < :start order by first_offset limit :n;
delete {log} from {given} straight_join {log} force index (primary) on {log}.id = given.id;
delete from {runs} where first_offset <= :last_offset;
insert into {runs} (first_offset, first_id, last_id)
select first_offset, low, high from {run};
