-- Drop the rate of a queue that limits its claims.
-- Commits by itself; what a crash leaves, the next drop of this name drops.
drop table if exists {rate};
