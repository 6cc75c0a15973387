-- Dependencies: messages that wait until others have left their queues.

-- name: create_dependencies
-- Runs in one transaction: a crash leaves nothing.
create table if not exists {dependencies} (
    id integer primary key autoincrement,
    queue text not null,
    message integer not null,
    on_table text not null,
    on_id integer not null,
    on_dead text not null,
    delay real,
    due integer
) strict;
create index if not exists tq__dependencies_queue on {dependencies} (queue, on_table, id);
create index if not exists tq__dependencies_message on {dependencies} (queue, message);
create index if not exists tq__dependencies_on on {dependencies} (on_table);

-- name: existing_ids
-- Indexes: the primary keys. Locks: none.
select id from {queue} where id in (select value from json_each(:ids))
-- [keep]
union all
select id from {history} where id in (select value from json_each(:ids))
-- [end]
;

-- name: waits_for
-- Index: message. Locks: none.
select message, count(case when on_table <> '' then 1 end)
from {dependencies}
where queue = '{table}' and message in (select value from json_each(:ids))
group by message;

-- name: ended_dependencies
-- Indexes: tq__dependencies_queue, the primary keys. Locks: none.
select
    waiting.id, waiting.message,
    other.id is not null and waiting.on_dead = 'cancel' and message.id is not null
from {dependencies} as waiting
left join {source} as other on other.id = waiting.on_id
left join {queue} as message on message.id = waiting.message and message.due_at = :due
where waiting.queue = '{table}' and waiting.on_table = :on_table
    and (other.id is null or (other.state = 'dead' and waiting.on_dead <> 'wait'))
order by waiting.id
limit :n;

-- name: free_heads
-- Index: the primary key. Locks: the database. A crash leaves all or nothing.
update {queue} as message
set due_at = max({now} + cast(ifnull(head.delay, 0) * 1000000 as integer), ifnull(head.due, 0))
from {dependencies} as head
where head.id in (select value from json_each(:ids)) and message.id = head.message
    and message.due_at = :due and message.state in ('scheduled', 'blocked');

-- name: waiting_fronts
-- Indexes: {table}__scheduled, {table}__blocked. Locks: none.
select front.id from {queue} as front
where front.state = 'scheduled' and front.due_at = :due and exists (
    select 1 from {queue} as earlier
    where earlier.group_key = front.group_key and earlier.state = 'blocked' and earlier.id < front.id
)
limit :n;

-- name: block_fronts
-- Block those of :ids that still wait for others. A trigger makes the lowest id of the group its head.
-- Index: the primary key. Locks: the database. A crash leaves all or nothing.
update {queue} set state = 'blocked'
where id in (select value from json_each(:ids)) and state = 'scheduled' and due_at = :due;

-- name: forget_dependencies
-- Index: the primary key. Locks: the database. A crash leaves all or nothing.
delete from {dependencies} where id in (select value from json_each(:ids));
