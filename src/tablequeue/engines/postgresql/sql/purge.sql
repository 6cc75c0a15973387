-- Delete up to :n messages that are {state}, lowest id first. Index: {table}__{state}.
-- Bounded, and locked rows are skipped, so that no consumer waits. What was deleted before a crash stays deleted.
delete from {queue}
where id = any(array(
    select id from {queue} where state = '{state}' order by id limit :n for update skip locked
));
