-- Close a place for each message in progress that has none: it was claimed by a consumer that did not know of the limit
-- yet. Remove the closed places whose message is no longer in progress. Packs, which have no places, are unpacked.
-- Index: the primary keys, {table}__in_progress. Locks: the rows. A pack that an application has locked, because it
-- finishes messages of it in its transaction, is skipped. A crash leaves some of it for the next time.
delete from {slots} as place
where slot < 0 and (
    select true from {queue} where id = place.message and token = place.token and state = 'in_progress'
) is null;
with pack as (
    delete from {packs} where token = any (array(select token from {packs} for update skip locked)) returning *
), unpacked as (
    insert into {queue} (
        id, state, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, lease_until, producer,
        consumer, headers, payload
    )
    select
        message.id, 'in_progress', 1, message.priority, pack.token, message.pushed_at, message.due_at, pack.popped_at,
        pack.popped_at, pack.lease_until, message.producer, pack.consumer, message.headers, message.payload
    from pack, {pack_messages}
    returning id, token
), held as (
    select id, token from {queue} where state = 'in_progress'
    union all
    select id, token from unpacked
)
insert into {slots} (slot, message, token)
select -id, id, token
from held
where not exists (select from {slots} as place where place.message = held.id and place.token = held.token)
on conflict do nothing;
