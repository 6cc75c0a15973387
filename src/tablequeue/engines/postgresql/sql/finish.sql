-- What ends an attempt or changes a message: complete, fail, release, extend, cancel, reschedule.

-- name: complete
-- Index: the primary key. Locks: the rows. A crash leaves all of them completed, or none.
-- [keep]
with finished as (
    delete from {queue}
    where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
    returning *
)
-- [keep batches]
, kept as (
-- [keep]
insert into {history} (
    {history_row without token}
)
select
    {history_row without token with finished_at = {now}}
from finished
returning id{then_ending};
-- [none]
delete from {queue}
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
returning id{ending};
-- [end]

-- name: complete_stream
-- Complete all messages that are in progress under :token, which is a stream's and has no lease.
-- Index: {table}__in_progress: of 10,000 messages it takes 0.74 of the server's time of a search for each id.
-- Locks: the rows. A crash leaves all of them completed, or none.
-- [keep]
with finished as (
    delete from {queue}
    where state = 'in_progress' and lease_until is null and token = cast(:token as uuid)
    returning *
)
insert into {history} (
    {history_row without token}
)
select
    {history_row without token with finished_at = {now}}
from finished;
-- [none]
delete from {queue}
where state = 'in_progress' and lease_until is null and token = cast(:token as uuid);
-- [end]

-- name: complete_at_most_once
-- Index: the primary key of the history. Locks: the rows. A crash leaves all of them completed, or none.
update {history}
set finished_at = {now}, token = null
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
returning id;

-- name: complete_and_claim
-- Complete the messages of :ids that are held under :held. If these are all :number of them, claim up to :n ready
-- messages under a new lease, as claim does. One round trip and one flush for both.
-- Returns a row for each claimed message; or, if fewer were completed, one row with the ids of those. In a queue with
-- batches also such a row if a batch may end, with that batch; it names the batch of a message if no other is ready,
-- which it does not look up if it has claimed one.
-- Indexes: the primary key, {table}__ready. Locks: the rows. A crash leaves all of it or nothing.
with finished as (
    delete from {queue}
    where id = any(cast(:ids as bigint[])) and token = cast(:held as uuid)
    -- [keep]
    returning *
), kept as (
    insert into {history} (
        {history_row without token}
    )
    select
        {history_row without token with finished_at = {now}}
    from finished
    -- [end]
    -- [none]
    returning id{and_batch}
    -- [end]
), claimed as (
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
        limit case when (select count(*) from finished) = :number then :n else 0 end
        for update skip locked
    ))
    -- [end]
    -- [fair]
    where id = any(array(
        {in_turn if_completed}
    ))
    -- [end]
    returning
        {claimed_names}{and_slot}{and_batch}
)
-- [not batches]
select *, null as finished from claimed
union all
select {claimed_nulls}{and_null}, array_agg(id) from finished
having count(*) < :number;
-- [batches not fair]
select {claimed_names}, null as ending, null as finished from claimed
-- [batches fair]
select {claimed_names}, slot, null as ending, null as finished from claimed
-- [batches]
union all
select {claimed_nulls}{and_null}, array_agg(ending), array_agg(id) from (
    select id, case when batch_id = any(array(select batch_id from claimed)) then null else {may_end} end as ending
    from finished
) as completed
having count(*) < :number or count(ending) > 0;
-- [end]

-- name: keep_results
-- Index: the primary key. A crash before the commit keeps nothing, and completes nothing.
-- [batches]
insert into {results} (id, batch_id, result) values (:id, :batch_id, cast(cast(:result as text) as json));
-- [else]
insert into {results} (id, result) values (:id, cast(cast(:result as text) as json));
-- [end]

-- name: result
-- Index: the primary key. Locks: none.
select cast(result as text) from {results} where id = :id;

-- name: fail
-- Fail the attempts on the messages of :ids that are held under :token: each is ready again after its seconds of
-- :delays, or a dead letter if this was its last attempt. The error is kept. Returns their states, and as in push,
-- whether consumers wait.
-- Index: the primary key. Locks: the rows. A crash leaves them in progress until their leases expire.
with failed as (
    update {queue} as message
    set state = case
            when attempts >= :max_attempts{in_time} then 'dead'{or_blocked}
            when given.delay > 0 then 'scheduled'
            else 'ready'
        end,
        due_at = case
            when attempts >= :max_attempts{in_time} then due_at
            else {now} + given.delay * interval '1 second'
        end,
        errors = {errors_and error=:error},
        token = null,
        lease_until = null{out_of_run}
    from unnest(cast(:ids as bigint[]), cast(:delays as float8[])) as given (id, delay)
    where message.id = given.id and token = cast(:token as uuid) and cancelled_at is null
    returning message.id, state
)
select id, state, case when state <> 'dead' then {waited_for} else false end as waited_for from failed;

-- name: fail_at_most_once
-- Index: the primary key of the history. Locks: the rows. A crash leaves all of them failed, or none.
update {history}
set errors = {errors_and error=:error},
    token = null
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
returning id, 'lost';

-- name: release
-- Returns which were in a run, so that their group goes on by a promotion. Index: the primary key. Locks: the rows.
-- A crash leaves them in progress until the lease expires.
with released as (
    update {queue}
    set state = case{or_blocked} when cast(:delay as float8) > 0 then 'scheduled' else 'ready' end,
        due_at = case
            when cast(:delay as float8) > 0 then {now} + cast(:delay as float8) * interval '1 second'
            else due_at
        end,
        attempts = attempts - 1,
        token = null,
        lease_until = null{out_of_run}
    where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid) and cancelled_at is null
    returning id, state = 'blocked' as from_run
)
select id, from_run, {waited_for} as waited_for from released;

-- name: extend
-- Index: the primary key. Locks: the rows. A crash leaves all of them extended, or none.
update {queue}
set lease_until = {now} + cast(:lease as float8) * interval '1 second'
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
returning id, lease_until;

-- name: cancel
-- Returns each message, and whether it was told. Index: the primary key.
-- Locks: the rows, in the order of their ids; it waits for claims and finishes under way, and then sees the state that
-- they left.
-- A crash leaves all or nothing.
with message as materialized (
    select id, state from {queue} where id = any(cast(:ids as bigint[])) order by id for update
), told as (
    update {queue}
    set cancelled_at = coalesce(cancelled_at, {now})
    where id = any(array(select id from message where state = 'in_progress'))
    returning id
), gone as (
    delete from {queue}
    where id = any(array(select id from message where state <> 'in_progress'))
    returning *
-- [keep]
), kept as (
    insert into {history} (
        {history_row without token},
        outcome
    )
    select
        {history_row without token with finished_at = {now}},
        'cancelled'
    from gone
-- [end]
)
select id, true as told from told
union all
select id, false from gone;

-- name: cancel_held
-- :error is kept. Index: the primary key. Locks: the rows. A crash leaves all or nothing.
-- [keep]
with gone as (
    delete from {queue}
    where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid) and cancelled_at is not null
    returning *, case
        when cast(:error as text) is null then errors
        else {errors_and error=:error}
    end as all_errors
)
insert into {history} (
    {history_row without token},
    outcome
)
select
    {history_row without token with
        finished_at = {now}
        errors = all_errors},
    'cancelled'
from gone
returning id;
-- [end]
-- [none]
delete from {queue}
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid) and cancelled_at is not null
returning id;
-- [end]

-- name: told
-- Index: the primary key. Locks: none.
select id from {queue} where id = any(cast(:ids as bigint[])) and cancelled_at is not null;

-- name: holder
-- Index: the primary key. Locks: none.
select replace(cast(token as text), '-', '')
from {queue}
where id = :id and state = 'in_progress' and lease_until is not null;

-- name: reschedule
-- Returns as in push, whether consumers wait. Index: the primary key. Locks: the row; it waits for a claim under way.
-- A crash leaves it as it was.
with moved as (
    update {queue}
    set state = case
            when state = 'blocked' or (cast(:due as timestamptz) is null and cast(:delay as float8) is null) then state
            when coalesce(cast(:due as timestamptz), {now} + cast(:delay as float8) * interval '1 second') > {now}
                then 'scheduled'
            else 'ready'
        end,
        due_at = coalesce(
            cast(:due as timestamptz), {now} + cast(:delay as float8) * interval '1 second', due_at
        ),
        priority = coalesce(cast(:priority as integer), priority)
    where id = :id and state in ('ready', 'scheduled', 'blocked')
    returning id
)
select id, {waited_for} as waited_for from moved;
