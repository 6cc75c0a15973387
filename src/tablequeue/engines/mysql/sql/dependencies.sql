-- Dependencies: messages that wait until others have left their queues.

-- name: create_dependencies
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table if not exists {dependencies} (
    id bigint not null auto_increment primary key,
    queue varchar(64) character set ascii collate ascii_bin not null,
    message bigint not null,
    on_table varchar(64) character set ascii collate ascii_bin not null,
    on_id bigint not null,
    on_dead varchar(8) character set ascii collate ascii_bin not null,
    delay double,
    due datetime(6),
    key queue (queue, on_table, id),
    key message (queue, message),
    key on_table (on_table)
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: what messages wait for';

-- name: existing_ids
-- Indexes: the primary keys. Locks: none.
select message.id from {given} straight_join {queue} as message force index (primary) on message.id = given.id
-- [keep]
union all
select message.id from {given} straight_join {history} as message force index (primary) on message.id = given.id
-- [end]
;

-- name: waits_for
-- Index: message. Locks: none.
select waiting.message, count(case when waiting.on_table <> '' then 1 end)
from {given}
straight_join {dependencies} as waiting on waiting.queue = '{table}' and waiting.message = given.id
group by waiting.message;

-- name: ended_dependencies
-- Indexes: queue, the primary keys. Locks: none.
select
    waiting.id, waiting.message,
    other.id is not null and waiting.on_dead = 'cancel' and message.id is not null
from {dependencies} as waiting
left join {source} as other on other.id = waiting.on_id
left join {queue} as message on message.id = waiting.message and message.due_at = cast(:due as datetime(6))
where waiting.queue = '{table}' and waiting.on_table = :on_table
    and (other.id is null or (other.state = 'dead' and waiting.on_dead <> 'wait'))
order by waiting.id
limit :n;

-- name: free_heads
-- Index: the primary key. Locks: the messages, which no consumer can have. A crash leaves all or nothing.
update {given}
straight_join {dependencies} as head force index (primary) on head.id = given.id
straight_join {queue} as message force index (primary) on message.id = head.message
set message.due_at = greatest(
    {now} + interval coalesce(head.delay, 0) second, coalesce(head.due, {now})
)
where message.due_at = cast(:due as datetime(6)) and message.state in ('scheduled', 'blocked');

-- name: waiting_fronts
-- Indexes: {table}__state, {table}__blocked. Locks: none.
select front.id from {queue} as front force index ({table}__state)
where front.state = 'scheduled' and front.sweep_at = cast(:due as datetime(6)) and exists (
    select 1 from {queue} as earlier
    where earlier.group_key = front.group_key and earlier.state = 'blocked' and earlier.id < front.id
)
limit :n;

-- name: block_fronts
-- Block those of :ids that still wait for others. Triggers note their groups, so that promote takes the lowest id.
-- Index: the primary key. Locks: the messages, which no consumer can have. A crash leaves all or nothing.
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set message.state = 'blocked'
where message.state = 'scheduled' and message.due_at = cast(:due as datetime(6));

-- name: forget_dependencies
-- Index: the primary key. Locks: the rows. A crash leaves all or nothing.
delete {dependencies} from {given} straight_join {dependencies} force index (primary) on {dependencies}.id = given.id;
