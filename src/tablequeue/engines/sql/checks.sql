-- Checks of `doctor`, and the state of the database and of connections.

-- name: read_clock
-- Locks: none.
select {now};
