-- Streams: claims that a batch can be read from again.

-- name: streams
-- Locks: none. Index: the primary key; {table}__state.
select
    convert(stream using utf8mb4), epoch, batch, completed, token, claimed_at,
    (
        select count(*) from {queue} as message
        where message.state = 'in_progress' and message.sweep_at is null and message.token = streams.token
    )
from {streams} as streams
order by streams.stream;

-- name: create_streams
-- Names are binary, as keys are.
-- Made when the first stream begins. A DDL commits by itself: a crash leaves the table or nothing.
create table if not exists {streams} (
    stream varbinary(1020) not null primary key,
    epoch bigint not null,
    batch bigint not null default 0,
    completed bigint not null default 0,
    token char(32) character set ascii collate ascii_bin,
    claimed_at datetime(6),
    failures longtext not null
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: streams of {table}';

-- name: stream_open
-- Index: the primary key. Locks: the row. A crash before the commit leaves the run before as it was.
insert into {streams} (stream, epoch, failures) values (:stream, 1, '{}')
on duplicate key update epoch = epoch + 1;

-- name: stream_claim
-- Index: {claim_index}, then the primary key. Locks: the rows; rows that another claim has locked are skipped.
-- In one transaction with stream_set: after a crash none is claimed.
-- name: stream_claim.lock
select id
from {queue} force index ({claim_index})
where {claimable} and (:high is null or id <= :high)
order by {order_by}
limit :n
for update skip locked;
-- name: stream_claim.change
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    first_popped_at = coalesce(first_popped_at, {now}),
    popped_at = {now},
    lease_until = null
where {indexed};

-- name: stream_ids
-- The ids of the messages in progress under :token, which is a stream's and has no lease, in their order.
-- Index: {table}__state. Locks: none.
select id
from {queue}
where state = 'in_progress' and sweep_at is null and token = :token
order by id;

-- name: stream_rows
-- Read the messages of :ids that are in progress under :token. Index: the primary key. Locks: none.
select
    {live_columns with id = message.id}
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
order by message.id;
