-- Drop the rate of a queue that limits its claims.
-- In one transaction with the queue: a crash leaves all or nothing.
drop table if exists {rate};
