-- Moves of messages to another queue, and between databases.

-- name: create_moving
-- Made at the first such move. Runs in one transaction: a crash leaves nothing.
create table if not exists {moving} (
    id integer primary key,
    state text not null,
    attempts integer not null,
    priority integer not null,
    token text not null,
    pushed_at integer not null,
    {moving_table},
    payload {staged_type} not null
) strict;
create table if not exists {moved} (
    id integer not null,
    token text not null,
    new_id integer not null,
    primary key (id, token)
) strict, without rowid;

-- name: move
-- A row less is returned for each whose key a message of this queue has; then the caller rolls back.
-- Index: the primary key. Locks: the database. In one transaction: a crash leaves each message in one of the queues.
-- name: move.find
select id from {source}
where id in (select value from json_each(:ids)) and state in ('ready', 'scheduled', 'blocked', 'dead')
order by id;
-- name: move.insert
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
from {source}
where id in (select value from json_each(:ids))
order by id
on conflict (dedup_key) where dedup_key is not null do nothing
returning id;
-- name: move.delete
delete from {source} where id in (select value from json_each(:ids));

-- name: waiting
-- Lock up to :n messages with ids above :after, up to :high, that no consumer holds, in the order of their ids. One
-- statement for all states: a message whose state changes meanwhile is not passed over.
-- Index: the primary key. Locks: the database. A crash leaves nothing.
select id, group_key, dedup_key
from {queue}
where id > :after and id <= :high and state <> 'in_progress'
order by id
limit :n;

-- name: set_aside
-- Index: the primary key. Locks: the database. In one transaction: a crash leaves all in the queue, or all aside.
insert into {moving} (
    {queue_row without lease_until}, expires_at
)
select
    {queue_row without lease_until with token = :token}, expires_at
from {queue}
where id in (select value from json_each(:ids));
delete from {queue} where id in (select value from json_each(:ids));

-- name: forget_aside
-- Index: the primary key. Locks: the database. A crash leaves them, and the next move finds that they are there.
delete from {moving} where id in (select value from json_each(:ids));

-- name: find_moved
-- Index: the primary key. Locks: none.
select id, token, new_id from {moved} where id in (select value from json_each(:ids));
