-- Drop the places of a queue that limits its messages in progress.
-- In one transaction with the queue: a crash leaves all or nothing.
drop table if exists {slots};
