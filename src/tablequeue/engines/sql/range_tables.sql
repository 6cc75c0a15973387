-- The tables and functions of a subscription's ranges of the log.

-- name: drop_ranges
-- It waits for transactions that use the table. In one transaction with its queue: a crash leaves all or nothing. On
-- MariaDB and MySQL, the catalogue forgot the subscription before: a crash leaves a table that the next create of this
-- name drops.
drop table if exists {ranges};
