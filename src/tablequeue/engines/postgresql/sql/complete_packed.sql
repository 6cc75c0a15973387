-- Complete the pack that is held under :token, if :ids are all of its messages. Returns a row if there was such a pack.
-- Index: the primary key. Locks: the row. A crash completes all of them or none.
-- [keep]
with pack as (
    delete from {packs}
    where token = cast(:token as uuid) and ids = cast(:ids as bigint[])
    returning *
), kept as (
    insert into {history} (
        id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, producer, consumer, headers,
        payload
    )
    select
        message.id, 1, message.priority, message.pushed_at, message.due_at, pack.popped_at, pack.popped_at, {now},
        message.producer, pack.consumer, message.headers, message.payload
    from pack, {pack_messages}
)
select size from pack;
-- [end]
-- [none]
delete from {packs}
where token = cast(:token as uuid) and ids = cast(:ids as bigint[])
returning size;
-- [end]
