-- Drop the doorbell of the queue, whoever waits for it. A crash leaves nothing of it or all.
drop service [{queue}__bell];
drop queue {queue}__bell;
