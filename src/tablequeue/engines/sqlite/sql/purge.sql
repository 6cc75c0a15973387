-- Delete up to :n messages that are {state}, lowest id first. Index: {table}__{state}.
-- Bounded, so that consumers get their turn between two batches. What was deleted before a crash stays deleted.
delete from {queue}
where id in (select id from {queue} where state = '{state}' order by id limit :n);
