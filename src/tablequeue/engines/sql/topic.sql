-- The log of a topic: push, give offsets, read, trim.

-- name: topic_pushed_at
-- When the message was pushed that has the highest id up to the offset :start. These times never go back, so that one
-- can search by them, though a message that was committed late comes after younger ones.
-- Indexes: the primary keys. Locks: none.
select pushed_at from {log} where id = (
    select max(least(last_id, first_id + :start - first_offset)) from {runs} where first_offset <= :start
);
