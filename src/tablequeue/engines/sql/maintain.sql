-- Maintenance of a queue: sweep, expire, redrive, purge, and moves of dead letters.

-- name: put_back
-- Put back, as a dead letter, a message that was taken in this transaction and whose payload cannot be read.
-- Index: the primary key. Locks: the row, on SQLite the database. A crash before the commit leaves it where it was
-- before it was taken.
insert into {queue} (
    {queue_row without token lease_until producer}
)
values (
    {queue_values without token lease_until producer with
        state = 'dead'
        first_popped_at = :popped_at}
);

-- name: forget
-- Index: the primary key. Locks: the row, on SQLite the database. A crash before the commit leaves it where it was
-- before it was taken.
delete from {history} where id = :id;
