-- Drop the rates of the groups of a queue.
-- Commits by itself; what a crash leaves, the next drop of this name drops.
drop table if exists {group_rates};
