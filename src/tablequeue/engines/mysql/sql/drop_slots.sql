-- Drop the places of a queue that limits its messages in progress.
-- Commits by itself; what a crash leaves, the next drop of this name drops.
drop table if exists {slots};
