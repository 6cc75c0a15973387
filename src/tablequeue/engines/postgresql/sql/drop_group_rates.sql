-- Drop the rates of the groups of a queue.
-- In one transaction with the queue: a crash leaves all or nothing.
drop table if exists {group_rates};
