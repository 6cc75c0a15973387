-- What the claims of a queue with limits for each group need: the index serves the count of the messages of a group in
-- progress, which is exact, because one transaction writes at a time.
-- Runs in one transaction: a crash leaves nothing.
create index {table}__working on {queue} ({slot}, lease_until) where state = 'in_progress';
