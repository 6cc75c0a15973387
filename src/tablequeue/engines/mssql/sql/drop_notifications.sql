-- Drop the notifications of the queue, even while consumers wait for them. A crash leaves nothing of them or all.
drop service [{queue}__notify];
drop queue {queue}__notify;
