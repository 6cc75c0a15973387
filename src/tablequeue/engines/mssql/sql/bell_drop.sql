-- Drop the doorbell of the queue, even if sessions wait for it. A crash leaves nothing of it or all.
drop service [{queue}__bell];
drop queue {queue}__bell;
