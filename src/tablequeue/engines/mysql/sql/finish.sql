-- What ends an attempt or changes a message: complete, fail, release, extend, cancel, reschedule.

-- name: complete
-- The first statement finds those that are held. All of them are one packet. A statement that deletes one message needs
-- no first one: the number of rows is enough.
-- Index: the primary key. Locks: the rows. A crash leaves all of them completed, or none.
-- name: complete.lock
select message.id{ending}
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
for update;
-- name: complete.change
-- [keep]
insert into {history} (
    {history_row without token}
)
select
    {history_row without token with
        id = message.id
        finished_at = {now}}
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
for update;
-- [end]
delete {queue}, {live_keys}
from {given} straight_join {queue} force index (primary) on {queue}.id = given.id and token = :token
{with_key};

-- name: complete_at_most_once
-- Of several messages the first statement finds those that are held. For one, the number of rows is enough.
-- Index: the primary key of the history. Locks: the rows. A crash leaves all of them completed, or none.
-- name: complete_at_most_once.lock
select message.id
from {given} straight_join {history} as message force index (primary) on message.id = given.id and token = :token
for update;
-- name: complete_at_most_once.change
update {given} straight_join {history} as message force index (primary) on message.id = given.id and token = :token
set finished_at = {now}, token = null;

-- name: fail
-- Fail the attempts on the messages of :delays, pairs of an id and seconds, that are held under :token: each is ready
-- again after its delay, or a dead letter if this was its last attempt. The error is kept.
-- Of several messages the first statement finds those that are held, and their new states. For one, LAST_INSERT_ID
-- remembers the state for fail_state. A look at the row would come too late, because another consumer may have claimed
-- the message meanwhile.
-- Index: the primary key. Locks: the rows. A crash leaves them in progress until their leases expire.
-- name: fail.lock
select
    message.id,
    case
        when attempts >= :max_attempts{in_time} then 'dead'{or_blocked}
        when delay > 0 then 'scheduled'
        else 'ready'
    end as state
from {delayed} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
    and cancelled_at is null
for update;
-- name: fail.change
update {delayed} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
    and cancelled_at is null
set state = elt(
        last_insert_id(case
            when attempts >= :max_attempts{in_time} then 3{or_fourth} when delay > 0 then 2 else 1
        end),
        'ready', 'scheduled', 'dead'{fourth}
    ),
    due_at = case when attempts >= :max_attempts{in_time} then due_at else {now} + interval delay second end,
    errors = {errors_and error=:error},
    token = null,
    lease_until = null{out_of_run};

-- name: fail_at_most_once
-- Of several messages the first statement finds those that are held. For one, the number of rows is enough.
-- Index: the primary key of the history. Locks: the rows. A crash leaves all of them failed, or none.
-- name: fail_at_most_once.lock
select message.id
from {given} straight_join {history} as message force index (primary) on message.id = given.id and token = :token
for update;
-- name: fail_at_most_once.change
update {given} straight_join {history} as message force index (primary) on message.id = given.id and token = :token
set errors = {errors_and error=:error},
    token = null;

-- name: fail_state
-- The state that the fail before it, on the same connection, gave its message.
select elt(last_insert_id(), 'ready', 'scheduled', 'dead'{fourth});

-- name: release
-- The first statement tells which of several they are; one alone is known by the number of rows.
-- Index: the primary key. Locks: the rows. A crash leaves them in progress until the lease expires.
-- name: release.lock
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
where cancelled_at is null
for update;
-- name: release.change
update {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
set state = case{or_blocked} when :delay > 0 then 'scheduled' else 'ready' end,
    due_at = case when :delay > 0 then {now} + interval :delay second else due_at end,
    attempts = attempts - 1,
    token = null,
    lease_until = null{out_of_run}
where cancelled_at is null;

-- name: extend
-- One packet; the first statement is for a caller's transaction, which may see others than it locks.
-- Index: the primary key. Locks: the rows. A crash leaves all of them extended, or none.
-- name: extend.lock
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
for update;
-- name: extend.change
update {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
set lease_until = {now} + interval :lease second;
-- name: extend.read
select message.id, lease_until
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token;

-- name: cancel
-- The first statement returns each message, and whether it is to be told. Index: the primary key.
-- Locks: the rows; it waits for claims and finishes under way. A crash leaves all or nothing.
-- name: cancel.lock
select message.id, message.state = 'in_progress' as told
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
for update;
-- name: cancel.change
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set cancelled_at = coalesce(cancelled_at, {now})
where state = 'in_progress';
-- [keep]
insert into {history} (
    {history_row without token},
    outcome
)
select
    {history_row without token with
        id = message.id
        finished_at = {now}},
    'cancelled'
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where state <> 'in_progress'
for update;
-- [end]
delete {queue}, {live_keys}
from {given} straight_join {queue} force index (primary)
    on {queue}.id = given.id and state <> 'in_progress'
{with_key};

-- name: cancel_held
-- If :token is null, those whose lease has expired. :error is kept. The first statement returns them; the others are
-- about those that it returned.
-- Index: the primary key. Locks: the rows. A crash leaves all or nothing.
-- name: cancel_held.lock
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where cancelled_at is not null and (token = :token or (:token is null and sweep_at <= {now}))
for update;
-- name: cancel_held.change
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set errors = {errors_and error=:error}
where cancelled_at is not null and :error is not null;
-- [keep]
insert into {history} (
    {history_row without token},
    outcome
)
select
    {history_row without token with
        id = message.id
        finished_at = {now}},
    'cancelled'
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where cancelled_at is not null
for update;
-- [end]
delete {queue}, {live_keys}
from {given} straight_join {queue} force index (primary)
    on {queue}.id = given.id and cancelled_at is not null
{with_key};

-- name: told
-- Index: the primary key. Locks: none.
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where cancelled_at is not null;

-- name: holder
-- Index: the primary key. Locks: none.
select token from {queue} force index (primary) where id = :id and state = 'in_progress' and lease_until is not null;

-- name: reschedule
-- The first statement tells whether it waits: the number of rows of an update leaves out a row that stays the same.
-- Index: the primary key. Locks: the row; it waits for a claim under way. A crash leaves it as it was.
-- name: reschedule.lock
select id from {queue} where id = :id and state in ('ready', 'scheduled', 'blocked') for update;
-- name: reschedule.change
update {queue}
set state = case
        when state = 'blocked' or (cast(:due as datetime(6)) is null and :delay is null) then state
        when coalesce(cast(:due as datetime(6)), {now} + interval :delay second) > {now} then 'scheduled'
        else 'ready'
    end,
    due_at = coalesce(cast(:due as datetime(6)), {now} + interval :delay second, due_at),
    priority = coalesce(:priority, priority)
where id = :id and state in ('ready', 'scheduled', 'blocked');
