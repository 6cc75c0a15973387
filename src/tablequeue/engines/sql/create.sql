-- The tables of a queue: create and drop.

-- name: create_expiry
create index if not exists {table}__expires on {queue} (expires_at) where {waiting};

-- name: create_expired
create index if not exists {table}__expired on {history} (finished_at) where outcome = 'expired';

-- name: drop
-- Drop a queue's table, with its triggers; what was in it is gone. It waits for transactions that use the table.
-- In one transaction with the history: a crash leaves all or nothing. On MariaDB and MySQL, the catalogue forgot the
-- queue before: a crash leaves tables that the next create of this name drops.
drop table if exists {queue};

-- name: drop_results
-- Drop the table of the results. In one transaction with the queue, where the database can.
drop table if exists {results};

-- name: drop_history
-- Drop a queue's history, if it keeps one: another queue may have a table of that name.
drop table if exists {history};

-- name: drop_keys
-- Drop the table of the keys. In one transaction with the queue, where the database can.
drop table if exists {keys};
