-- Drop the doorbell of the queue, whoever waits for it. A crash leaves nothing of it or all.
drop service [{queue}_bell];
drop queue {queue}_bell;
