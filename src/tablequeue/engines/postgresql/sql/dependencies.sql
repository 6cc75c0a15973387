-- Dependencies: messages that wait until others have left their queues.

-- name: create_dependencies
-- Only if it is not there: an index of it, also if not exists, waits for all who write.
-- Runs in one transaction: a crash leaves nothing.
do $$
    begin
        if to_regclass('{dependencies}') is null then
            create table {dependencies} (
                id bigint generated always as identity constraint tq__dependencies_id primary key,
                queue text not null,
                message bigint not null,
                on_table text not null,
                on_id bigint not null,
                on_dead text not null,
                delay float8,
                due timestamptz
            );
            create index tq__dependencies_queue on {dependencies} (queue, on_table, id);
            create index tq__dependencies_message on {dependencies} (queue, message);
            create index tq__dependencies_on on {dependencies} (on_table);
        end if;
    end;
    $$;

-- name: add_dependencies
-- Note that the message, which the same transaction pushes, waits for another one; or its head.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
insert into {dependencies} (queue, message, on_table, on_id, on_dead, delay, due)
values (
    '{table}', :message, :on_table, :on_id, :on_dead, cast(:delay as float8), cast(:due as timestamptz)
);

-- name: existing_ids
-- Indexes: the primary keys. Locks: none.
select id from {queue} where id = any(cast(:ids as bigint[]))
-- [keep]
union all
select id from {history} where id = any(cast(:ids as bigint[]))
-- [end]
;

-- name: waits_for
-- Index: message. Locks: none.
select message, count(case when on_table <> '' then 1 end)
from {dependencies}
where queue = '{table}' and message = any(cast(:ids as bigint[]))
group by message;

-- name: ended_dependencies
-- Indexes: tq__dependencies_queue, the primary keys. Locks: none.
select
    waiting.id, waiting.message,
    other.id is not null and waiting.on_dead = 'cancel' and message.id is not null
from {dependencies} as waiting
left join {source} as other on other.id = waiting.on_id
left join {queue} as message on message.id = waiting.message and message.due_at = cast(:due as timestamptz)
where waiting.queue = '{table}' and waiting.on_table = :on_table
    and (other.id is null or (other.state = 'dead' and waiting.on_dead <> 'wait'))
order by waiting.id
limit :n;

-- name: free_heads
-- Index: the primary key. Locks: the messages, which no consumer can have. A crash leaves all or nothing.
update {queue} as message
set due_at = greatest({now} + coalesce(head.delay, 0) * interval '1 second', head.due)
from {dependencies} as head
where head.id = any(cast(:ids as bigint[])) and message.id = head.message
    and message.due_at = cast(:due as timestamptz) and message.state in ('scheduled', 'blocked');

-- name: waiting_fronts
-- Indexes: {table}__scheduled, {table}__blocked. Locks: none.
select front.id from {queue} as front
where front.state = 'scheduled' and front.due_at = cast(:due as timestamptz) and exists (
    select 1 from {queue} as earlier
    where earlier.group_key = front.group_key and earlier.state = 'blocked' and earlier.id < front.id
)
limit :n;

-- name: block_fronts
-- Block those of :ids that still wait for others. Triggers note their groups, so that promote takes the lowest id.
-- Index: the primary key. Locks: the messages, which no consumer can have. A crash leaves all or nothing.
update {queue} set state = 'blocked'
where id = any(cast(:ids as bigint[])) and state = 'scheduled' and due_at = cast(:due as timestamptz);

-- name: forget_dependencies
-- Index: the primary key. Locks: the rows. A crash leaves all or nothing.
delete from {dependencies} where id = any(cast(:ids as bigint[]));
