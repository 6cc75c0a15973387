-- Moves of messages to another queue, and between databases.

-- name: create_moving
-- Made at the first such move. A DDL commits by itself: a crash leaves a table or none.
create table if not exists {moving} (
    id bigint not null primary key,
    state varchar(11) character set ascii collate ascii_bin not null,
    attempts int not null,
    priority int not null,
    token char(32) character set ascii collate ascii_bin not null,
    pushed_at datetime(6) not null,
    {moving_table},
    payload {staged_type} not null
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: moving of {table}';
create table if not exists {moved} (
    id bigint not null,
    token char(32) character set ascii collate ascii_bin not null,
    new_id bigint not null,
    primary key (id, token)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: moved of {table}';

-- name: move
-- A duplicate-key error if a message of this queue has the key of one. The new ids are found by :token, above the first
-- one: those of an INSERT ... SELECT need not be consecutive.
-- Indexes: the primary keys. Locks: the rows. In one transaction: a crash leaves each message in one of the queues.
-- name: move.find
select message.id
from {given} straight_join {source} as message force index (primary) on message.id = given.id
where state in ('ready', 'scheduled', 'blocked', 'dead')
order by message.id
for update;
-- name: move.insert
insert into {queue} (
    token, state,
    {queue_row without id state token lease_until}{expires_at}
)
select
    :token,
    case
        when state = 'dead' then 'dead'
        when due_at > {now} then '{pushed_scheduled}'
        else '{pushed_ready}'
    end,
    {queue_row without id state token lease_until with
        due_at = {moved_due}
        group_key = {moved_group}}{expires_at}
from {given} straight_join {source} as message force index (primary) on message.id = given.id
order by message.id;
insert into {live_keys} (dedup_key, id)
select dedup_key, id from {queue} force index (primary)
where id >= last_insert_id() and token = :token and dedup_key is not null;
-- name: move.read
select id from {queue} force index (primary) where id >= last_insert_id() and token = :token order by id;
-- name: move.unmark
update {queue} force index (primary) set token = null where id >= last_insert_id() and token = :token;
-- name: move.delete
delete {source}{and_source_key}
from {given} straight_join {source} force index (primary) on {source}.id = given.id{with_source_key};

-- name: waiting
-- Lock up to :n messages with ids above :after, up to :high, that no consumer holds, in the order of their ids. One
-- statement for all states: a message whose state changes meanwhile is not passed over.
-- Index: the primary key. Locks: the rows; it waits for claims and takes under way. A crash leaves nothing.
select id, convert(group_key using utf8mb4), convert(dedup_key using utf8mb4)
from {queue} force index (primary)
where id > :after and id <= :high and state <> 'in_progress'
order by id
limit :n
for update;

-- name: busy_groups
-- Index: {table}__state. Locks: none.
select distinct convert(group_key using utf8mb4) from {queue} force index ({table}__state)
where state = 'in_progress';

-- name: set_aside
-- Index: the primary key. Locks: the rows. In one transaction: a crash leaves all in the queue, or all aside.
insert into {moving} (
    {queue_row without id lease_until}, id, expires_at
)
select
    {queue_row without id lease_until with token = :token}, message.id, expires_at
from {given} straight_join {queue} as message force index (primary) on message.id = given.id;
delete {queue}, {live_keys}
from {given} straight_join {queue} force index (primary) on {queue}.id = given.id
{with_key};

-- name: forget_aside
-- Index: the primary key. Locks: the rows. A crash leaves them, and the next move finds that they are there.
delete {moving}
from {given} straight_join {moving} force index (primary) on {moving}.id = given.id;

-- name: find_moved
-- Index: the primary key. Locks: none.
select message.id, message.token, message.new_id
from {given} straight_join {moved} as message force index (primary) on message.id = given.id;
