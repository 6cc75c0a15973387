-- Claims and takes of messages.

-- name: claim
-- Claim up to :n ready messages under a new lease; each is claimed by one consumer only, for SKIP LOCKED passes
-- over those that another one is claiming.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- Index: {table}__ready; in order of ids from :low_water on: dead entries before it are not walked again
-- (low_water.py). {row} = any(array(...)): the subquery runs once; a join may run it again and claim more than :n.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
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
    lease_until = {now} + cast(:lease as float8) * interval '1 second'
-- [not fair]
where {row} = any(array(
    select {row} from {queue}
    where {claimable}
    order by {order_by}
    limit {claim_limit}
    for update skip locked
))
-- [end]
-- [fair]
where id = any(array(
    {in_turn}
))
-- [end]
returning
    -- [not limited]
    {claimed}{and_slot};
    -- [end]
    -- [limited]
    {claimed}{and_slot}
), {noted}
select {of_claimed} from claimed;
-- [end]

-- name: take_keep
-- Move up to :n ready messages to the history: finished, or under :token until they are completed.
-- Index: {table}__ready. Locks: the rows, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too.
-- [not paced]
with taken as (
-- [end]
-- [paced]
with {bucket}taken as (
-- [end]
    delete from {queue}
    -- [not fair]
    where id = any(array(
        select id from {queue}
        where {claimable}
        order by {order_by}
        limit {take_limit}
        for update skip locked
    ))
    -- [end]
    -- [fair]
    where id = any(array(
        {take_in_turn}
    ))
    -- [end]
    returning *
)
-- [paced]
, claimed as (
-- [end]
insert into {history} (
    {history_row}
)
select
    {history_row with
        attempts = attempts + 1
        token = cast(:token as uuid)
        first_popped_at = coalesce(first_popped_at, {now})
        popped_at = {now}
        finished_at = case when cast(:token as uuid) is null then {now} end
        consumer = cast(:consumer as text)}
from taken
returning
    -- [not paced]
    {claimed with lease_until = cast(null as timestamptz)}{and_slot};
    -- [end]
    -- [paced]
    {claimed with lease_until = cast(null as timestamptz) as lease_until}{and_slot}
), {spent}
select {of_claimed} from claimed;
-- [end]

-- name: read_claimed
-- Read the messages of :ids that are in progress under :token: those of a claim that has been committed.
-- Index: the primary key. Locks: none.
select
    {claimed}{and_slot}
from {queue}
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid);

-- name: read_taken
-- Read the messages of :ids in the history, which a claim or a take under :token has moved there.
-- Index: the primary key. Locks: none.
select
    {claimed with lease_until = cast(null as timestamptz)}{and_slot}
from {history}
where id = any(cast(:ids as bigint[])) and token is not distinct from cast(:token as uuid);

-- name: claim_packed
-- As claim, for many messages. If none of them was claimed before, is large, or has a key, which must stay in its
-- index, they leave the table for one row of {packs}. Other messages are claimed row by row.
-- Index: {table}__ready; in order of ids from :low_water on. Locks: the rows; a crash claims none.
-- A consumer that dies leaves its pack; sweep returns the messages when the lease has expired.
with picked as materialized (
    select {row} as place,
        first_popped_at is null and dedup_key is null and errors is null
        and octet_length({payload_text}) + coalesce(octet_length(cast(headers as text)), 0) <= {largest_packed}
        as plain
    from {queue}
    where {claimable}
    order by {order_by}
    limit :n
    for update skip locked
), whole as materialized (
    select count(*) between {least_packed} and {most_packed} and bool_and(plain)
        and not exists (select from {packs} where token = cast(:token as uuid)) as packs
    from picked
), gone as (
    delete from {queue}
    where {row} = any(array(select place from picked where (select packs from whole)))
    returning *
), pack as (
    insert into {packs} (
        token, consumer, popped_at, lease_until, size, first_id, last_id, ids, priorities, pushed_ats, due_ats,
        producers, headers, payloads
    )
    select
        cast(:token as uuid), cast(:consumer as text), {now}, {now} + cast(:lease as float8) * interval '1 second',
        count(*), min(id), max(id), array_agg(id), array_agg(priority), array_agg(pushed_at), array_agg(due_at),
        array_agg(producer), array_agg(headers), array_agg(payload)
    from (select * from gone order by id) as message
    having count(*) > 0
), claimed as (
    update {queue}
    set state = 'in_progress',
        attempts = attempts + 1,
        token = cast(:token as uuid),
        consumer = cast(:consumer as text),
        popped_at = {now},
        first_popped_at = coalesce(first_popped_at, {now}),
        lease_until = {now} + cast(:lease as float8) * interval '1 second'
    where {row} = any(array(select place from picked where not (select packs from whole)))
    returning
        {claimed with
            payload = {payload_text} as payload
            headers = {headers_text} as headers
            errors = {errors_text} as errors}
)
select
    {claimed with
        attempts = attempts + 1
        popped_at = {now}
        lease_until = {now} + cast(:lease as float8) * interval '1 second'}
from gone
union all
select * from claimed;

-- name: take_none
-- Delete up to :n ready messages: the queue keeps no history.
-- Index: {table}__ready. Locks: the rows, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too.
-- [paced]
with {bucket}claimed as (
-- [end]
delete from {queue}
-- [not fair]
where id = any(array(
    select id from {queue}
    where {claimable}
    order by {order_by}
    limit {take_limit}
    for update skip locked
))
-- [end]
-- [fair]
where id = any(array(
    {take_in_turn}
))
-- [end]
returning
    -- [not paced]
    {claimed with
        attempts = attempts + 1
        popped_at = {now}
        lease_until = cast(null as timestamptz)}{and_slot};
    -- [end]
    -- [paced]
    {claimed with
        attempts = attempts + 1 as attempts
        popped_at = {now} as popped_at
        lease_until = cast(null as timestamptz) as lease_until}{and_slot}
), {spent}
select * from claimed;
-- [end]
