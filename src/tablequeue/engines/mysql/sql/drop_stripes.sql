-- Drop what the claims of a queue with limits for each group lock.
-- Commits by itself; what a crash leaves, the next drop of this name drops.
drop table if exists {stripes};
