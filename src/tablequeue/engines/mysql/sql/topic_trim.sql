-- Drop messages that come before the offset :start: up to :n of them, in the order of the offsets.
-- The first statement finds runs; the first of them is the last message that was dropped before. The part chooses
-- :pieces of ids, and computes :runs: the last message that is dropped now, and what is left of a run. The other
-- statements delete the messages, and replace the runs up to the offset :last_offset by these. sequence_wait comes
-- before.
-- Indexes: the primary keys. Locks: the rows. A crash leaves all of a call, or nothing.
select first_offset, first_id, last_id from {runs} where first_offset < :start order by first_offset limit :n;
delete {log} from {piece} straight_join {log} force index (primary) on {log}.id between piece.low and piece.high;
delete from {runs} where first_offset <= :last_offset;
insert into {runs} (first_offset, first_id, last_id)
select first_offset, low, high from {run};
