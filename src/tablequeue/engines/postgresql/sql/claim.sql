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

-- name: take
-- Index: {table}__ready. Locks: the rows, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too.
-- [keep not paced]
with taken as (
-- [keep paced]
with {bucket}taken as (
-- [none paced]
with {bucket}claimed as (
-- [keep]
    delete from {queue}
-- [keep not fair]
    where id = any(array(
        select id from {queue}
        where {claimable}
        order by {order_by}
        limit {take_limit}
        for update skip locked
    ))
-- [keep fair]
    where id = any(array(
        {in_turn take}
    ))
-- [keep]
    returning *
)
-- [keep paced]
, claimed as (
-- [keep]
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
-- [none]
delete from {queue}
-- [none not fair]
where id = any(array(
    select id from {queue}
    where {claimable}
    order by {order_by}
    limit {take_limit}
    for update skip locked
))
-- [none fair]
where id = any(array(
    {in_turn take}
))
-- [end]
returning
-- [keep not paced]
    {claimed with lease_until = cast(null as timestamptz)}{and_slot};
-- [keep paced]
    {claimed with lease_until = cast(null as timestamptz) as lease_until}{and_slot}
-- [none not paced]
    {claimed with
        attempts = attempts + 1
        popped_at = {now}
        lease_until = cast(null as timestamptz)}{and_slot};
-- [none paced]
    {claimed with
        attempts = attempts + 1 as attempts
        popped_at = {now} as popped_at
        lease_until = cast(null as timestamptz) as lease_until}{and_slot}
-- [paced]
), {spent}
-- [keep paced]
select {of_claimed} from claimed;
-- [none paced]
select * from claimed;
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
