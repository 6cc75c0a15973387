-- Checks of `doctor`, and the state of the database and of connections.

-- name: read_clock
-- The database's clock. Locks: none.
select {now};
