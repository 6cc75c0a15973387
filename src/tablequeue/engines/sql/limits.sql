-- Limits of messages in progress and of rates: the tables, and what a claim locks and writes there.

-- name: drop_slots
-- Drop the places of a queue that limits its messages in progress.
-- In one transaction with the queue: a crash leaves all or nothing. On MariaDB and MySQL it commits by itself, and the
-- next drop of this name drops what a crash leaves.
drop table if exists {slots};

-- name: drop_rate
-- Drop the rate of a queue that limits its claims.
-- In one transaction with the queue: a crash leaves all or nothing. On MariaDB and MySQL it commits by itself, and the
-- next drop of this name drops what a crash leaves.
drop table if exists {rate};

-- name: drop_group_rates
-- Drop the rates of the groups of a queue.
-- In one transaction with the queue: a crash leaves all or nothing. On MariaDB and MySQL it commits by itself, and the
-- next drop of this name drops what a crash leaves.
drop table if exists {group_rates};
