-- The clustered index of a queue in the order of due times. The id makes it unique: otherwise SQL Server would add four
-- bytes to each duplicate key.
-- Runs in the transaction that creates the table.
create unique clustered index {table}__due on {queue} (due_at, id);
