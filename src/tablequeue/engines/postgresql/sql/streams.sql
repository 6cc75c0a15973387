-- Streams: claims that a batch can be read from again.

-- name: streams
-- Locks: none. Index: the primary key; {table}__in_progress, where a stream has no lease.
select
    stream, epoch, batch, completed, token, claimed_at,
    (
        select count(*) from {queue} as message
        where message.state = 'in_progress' and message.lease_until is null
            and message.token = cast(streams.token as uuid)
    )
from {streams} as streams
order by stream;

-- name: create_streams
-- Made when the first stream begins, under the creators' lock. Runs in one transaction: a crash leaves nothing.
create table if not exists {streams} (
    stream text primary key,
    epoch bigint not null,
    batch bigint not null default 0,
    completed bigint not null default 0,
    token text,
    claimed_at timestamptz,
    failures text not null default '{}'
);

-- name: stream_set
-- Index: the primary key. A crash before the commit leaves it where it was, and its messages too.
update {streams}
set batch = :batch,
    completed = :completed,
    token = :claim,
    claimed_at = case when cast(:claim as text) is null then null else {now} end,
    failures = :failures
where stream = :stream;

-- name: stream_claim
-- Index: {table}__ready. Locks: the rows; rows that another claim has locked are skipped.
-- In one transaction with stream_set: after a crash none is claimed.
-- [limited]
with {permits}claimed as (
-- [end]
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = cast(:token as uuid),
    consumer = cast(:consumer as text),
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = null
-- [not fair]
where {row} = any(array(
    select {row} from {queue}
    where {claimable} and (cast(:high as bigint) is null or id <= :high)
    order by {order_by}
    limit {claim_limit}
    for update skip locked
))
-- [end]
-- [fair]
where id = any(array(
    {in_turn up_to_high}
))
-- [end]
-- [not limited]
returning id{and_slot};
-- [end]
-- [limited]
returning id{and_slot}
), {noted}
select * from claimed;
-- [end]

-- name: stream_ids
-- The ids of the messages in progress under :token, which is a stream's and has no lease, in their order.
-- Index: {table}__in_progress. Locks: none.
select id
from {queue}
where state = 'in_progress' and lease_until is null and token = cast(:token as uuid)
order by id;

-- name: stream_rows
-- Read the messages from id :low to :high that are in progress under :token, which is a stream's and has no lease.
-- Index: {table}__in_progress, whatever the ids: id + 0 is in no index. By the ids alone 5,000 of 100,000 messages were
-- found by reading them all. A list of ids costs as much again as the scan. Locks: none.
select
    {live_columns}
from {queue}
where state = 'in_progress' and lease_until is null and token = cast(:token as uuid)
    and id + 0 between cast(:low as bigint) and cast(:high as bigint)
order by id;
