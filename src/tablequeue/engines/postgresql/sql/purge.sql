-- Delete up to :n messages that are {state}, lowest id first. Index: {table}__{state}.
-- Bounded, and passing over locked rows, so that no consumer waits. A crash keeps what was deleted before.
delete from {queue}
where id = any(array(
    select id from {queue} where state = '{state}' order by id limit :n for update skip locked
));
