-- Drop what the claims of a queue with limits for each group lock.
-- In one transaction with the queue: a crash leaves all or nothing.
drop table if exists {stripes};
