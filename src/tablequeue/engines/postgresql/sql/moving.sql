-- Moves of messages to another queue, and between databases.

-- name: create_moving
-- Made at the first such move, under the creators' lock. Runs in one transaction: a crash leaves nothing.
create table if not exists {moving} (
    id bigint primary key,
    state text not null,
    attempts integer not null,
    priority integer not null,
    token text not null,
    pushed_at timestamptz not null,
    {moving_table},
    payload {payload_type} not null
);
create table if not exists {moved} (
    id bigint not null,
    token text not null,
    new_id bigint not null,
    primary key (id, token)
);

-- name: move
-- A new id is missing for each whose key a message of this queue has; then the caller rolls back. Ids are drawn in the
-- order of the select.
-- Index: the primary key. Locks: the rows; a key waits for another transaction that is pushing the same one. A message
-- that is claimed meanwhile stays. A crash leaves each message in one of the queues.
with moved as (
    delete from {source}
    where id = any(cast(:ids as bigint[])) and state in ('ready', 'scheduled', 'blocked', 'dead')
    returning *
), pushed as (
    insert into {queue} (
        state,
        {queue_row without id state token lease_until}{expires_at}
    )
    select
        case
            when state = 'dead' then 'dead'
            when due_at > {now} then '{pushed_scheduled}'
            else '{pushed_ready}'
        end,
        {queue_row without id state token lease_until with
            due_at = {moved_due}
            group_key = {moved_group}}{expires_at}
    from moved
    order by id
    on conflict (dedup_key) where dedup_key is not null do nothing
    returning id
)
select id, false as is_new from moved union all select id, true from pushed;

-- name: waiting
-- Lock up to :n messages with ids above :after, up to :high, that no consumer holds, in the order of their ids. One
-- statement for all states: a message whose state changes meanwhile is not passed over.
-- Index: the primary key. Locks: the rows; it waits for claims and takes under way. A crash leaves nothing.
select id, group_key, dedup_key
from {queue}
where id > :after and id <= :high and state || '' <> 'in_progress'
order by id
limit :n
for update;

-- name: set_aside
-- Index: the primary key. Locks: the rows. A crash leaves all in the queue, or all aside.
with gone as (
    delete from {queue} where id = any(cast(:ids as bigint[])) returning *
)
insert into {moving} (
    {queue_row without lease_until}, expires_at
)
select
    {queue_row without lease_until with token = cast(:token as text)}, expires_at
from gone;

-- name: forget_aside
-- Index: the primary key. Locks: the rows. A crash leaves them, and the next move finds that they are there.
delete from {moving} where id = any(cast(:ids as bigint[]));

-- name: find_moved
-- Index: the primary key. Locks: none.
select id, token, new_id from {moved} where id = any(cast(:ids as bigint[]));

-- name: put_aside
-- Put messages of another database where move finds them, in the transaction in which it moves them into this queue.
-- Locks: the rows. A crash before the commit leaves nothing.
insert into {moving} (
    {queue_row without lease_until}, expires_at
)
values (
    {queue_values without lease_until}, cast(:expires_at as timestamptz)
);

-- name: put_history
-- Copy messages of the history of another database into this one, under new ids.
-- In one transaction with note_moved: a crash leaves both, or none.
insert into {history} (
    {history_row without token}, outcome
)
values (
    {history_values without token}, cast(:outcome as text)
);
