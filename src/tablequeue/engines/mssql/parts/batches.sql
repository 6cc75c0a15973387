-- What the texts of batches have in common.

-- name: is_left
-- Whether a message `member` keeps its batch `batch` open.
(batch.on_dead = 'wait' or member.state in ('blocked', 'in_progress', 'ready', 'scheduled'))

-- name: batch_numbers
-- When the batch `batch` was opened, has failed and has ended; its messages when it was opened, those that left
-- without being completed, and the dead letters, final if it has ended; what was counted since; and the messages that
-- wait, are in progress, and are dead letters now. `of_messages` has the last five.
batch.opened_at,
batch.failed_at,
batch.ended_at,
batch.pushed,
batch.cancelled,
batch.dead,
coalesce(since.pushed, 0) as pushed_since,
coalesce(since.cancelled, 0) as cancelled_since,
coalesce(messages.waiting, 0) as waiting,
coalesce(messages.in_progress, 0) as in_progress,
coalesce(messages.dead, 0) as dead_now

-- name: of_messages
-- What was counted of the batch `batch` since it was opened, and the messages that are left of it.
cross apply (
    select sum(counted.pushed) as pushed, sum(counted.cancelled) as cancelled
    from {batch_counts} as counted
    where counted.batch_id = batch.id
) as since
cross apply (
    select
        sum(case when member.state in ('blocked', 'ready', 'scheduled') then 1 else 0 end) as waiting,
        sum(case when member.state = 'in_progress' then 1 else 0 end) as in_progress,
        sum(case when member.state = 'dead' then 1 else 0 end) as dead
    from {queue} as member with (index ({table}__batch))
    where member.batch_id = batch.id and member.batch_id is not null
) as messages

-- name: may_end
-- The batch of the completed message `done` if none of the last hundred messages that are left of it is ready, so that
-- it may end; else null. Locked messages are passed over: nobody waits.
case
    when done.batch_id is not null and not exists (
        select 1
        from (
            select top (100) other.state
            from {queue} as other with (index ({table}__batch), rowlock, readpast, readcommittedlock)
            where other.batch_id = done.batch_id and other.batch_id is not null
            order by other.id desc
        ) as newest
        where newest.state = 'ready'
    ) then done.batch_id end as ending
