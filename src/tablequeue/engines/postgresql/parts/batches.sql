-- The numbers of a batch.

-- name: batch_numbers
-- When the batch `batch` was opened, has failed and has ended; its messages when it was opened, those that left
-- without being completed, and the dead letters, final if it has ended; what was counted since; and the messages that
-- wait, are in progress, and are dead letters now.
opened_at,
failed_at,
ended_at,
pushed,
cancelled,
dead,
cast(coalesce((select sum(pushed) from {batch_counts} where batch_id = batch.id), 0) as bigint),
cast(coalesce((select sum(cancelled) from {batch_counts} where batch_id = batch.id), 0) as bigint),
(select count(*) from {queue} where batch_id = batch.id and state in ('blocked', 'ready', 'scheduled')),
(select count(*) from {queue} where batch_id = batch.id and state = 'in_progress'),
(select count(*) from {queue} where batch_id = batch.id and state = 'dead')
