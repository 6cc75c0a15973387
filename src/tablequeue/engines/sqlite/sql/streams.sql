-- Streams: claims that a batch can be read from again.

-- name: streams
-- Locks: none. Index: the primary key; {table}__in_progress, where a stream has no lease.
select
    stream, epoch, batch, completed, token, claimed_at,
    (
        select count(*) from {queue} as message
        where message.state = 'in_progress' and message.lease_until is null and message.token = streams.token
    )
from {streams} as streams
order by stream;

-- name: create_streams
-- Made when the first stream begins. Runs in one transaction: a crash leaves nothing.
create table if not exists {streams} (
    stream text primary key,
    epoch integer not null,
    batch integer not null default 0,
    completed integer not null default 0,
    token text,
    claimed_at integer,
    failures text not null default '{}'
) strict, without rowid;

-- name: stream_lock
-- Index: the primary key. Locks: the database.
select epoch, batch, completed, token, failures
from {streams}
where stream = :stream;

-- name: stream_claim
-- Index: {table}__ready. Locks: the database. In one transaction with stream_set: after a crash none is claimed.
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = null
-- [not fair]
where id in (
    select id from {queue}
    where {claimable} and (:high is null or id <= :high)
    order by {order_by}
    limit {claim_limit}
)
-- [else]
where id in (
    {in_turn up_to_high}
)
-- [end]
returning id{and_slot};

-- name: stream_ids
-- The ids of the messages in progress under :token, which is a stream's and has no lease, in their order.
-- Index: {table}__in_progress. Locks: none.
select id
from {queue}
where state = 'in_progress' and lease_until is null and token = :token
order by id;

-- name: stream_rows
-- Read the messages of :ids that are in progress under :token. Index: the primary key. Locks: none.
select
    {live_columns}
from {queue}
where id in (select value from json_each(:ids)) and token = :token
order by id;
