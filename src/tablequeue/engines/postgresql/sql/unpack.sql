-- The messages of the pack that is held under :token are rows of the queue, in progress under the same token and lease:
-- some of them are to be finished apart from the others. A row if there was such a pack.
-- Index: the primary key. Locks: the row. A crash leaves the pack as it was.
with pack as (
    delete from {packs} where token = cast(:token as uuid) returning *
), unpacked as (
    insert into {queue} (
        id, state, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, lease_until, producer,
        consumer, headers, payload
    )
    select
        message.id, 'in_progress', 1, message.priority, pack.token, message.pushed_at, message.due_at, pack.popped_at,
        pack.popped_at, pack.lease_until, message.producer, pack.consumer, message.headers, message.payload
    from pack, {pack_messages}
)
select size from pack;
