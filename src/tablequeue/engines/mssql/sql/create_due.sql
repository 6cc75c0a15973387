-- What a queue in the order of due times has besides: its messages lie in that order. Unique, by the id: else SQL
-- Server would add four bytes to the keys that are not.
-- In the transaction that makes the table.
create unique clustered index {table}__due on {queue} (due_at, id);
