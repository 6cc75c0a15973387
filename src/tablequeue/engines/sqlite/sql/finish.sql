-- What ends an attempt or changes a message: complete, fail, release, extend, cancel, reschedule.

-- name: complete
-- Index: the primary key. Locks: the database. The statements commit together: a crash leaves all of them completed, or
-- none.
-- [keep]
insert into {history} (
    {history_row without token}
)
select
    {history_row without token with finished_at = {now}}
from {queue}
where id in (select value from json_each(:ids)) and token = :token;
-- [end]
delete from {queue}
where id in (select value from json_each(:ids)) and token = :token
returning id{ending};

-- name: complete_at_most_once
-- Index: the primary key of the history. Locks: the database. A crash leaves all of them completed, or none.
update {history}
set finished_at = {now}, token = null
where id in (select value from json_each(:ids)) and token = :token
returning id;

-- name: fail
-- Fail the attempts on the messages of :delays, pairs of an id and seconds, that are held under :token: each is ready
-- again after its delay, or a dead letter if this was its last attempt. The error is kept.
-- Index: the primary key. Locks: the database. A crash leaves them in progress until their leases expire.
update {queue} as message
set state = case
        when attempts >= :max_attempts{in_time} then 'dead'{or_blocked}
        when given.delay > 0 then 'scheduled'
        else 'ready'
    end,
    due_at = case
        when attempts >= :max_attempts{in_time} then due_at
        else {now} + cast(given.delay * 1000000 as integer)
    end,
    errors = {errors_and error=:error},
    token = null,
    lease_until = null{out_of_run}
from (select json_extract(value, '$[0]') as id, json_extract(value, '$[1]') as delay from json_each(:delays)) as given
where message.id = given.id and token = :token and cancelled_at is null
returning id, state;

-- name: fail_at_most_once
-- Index: the primary key of the history. Locks: the database. A crash leaves all of them failed, or none.
update {history}
set errors = {errors_and error=:error},
    token = null
where id in (select value from json_each(:ids)) and token = :token
returning id, 'lost';

-- name: release
-- Index: the primary key. Locks: the database. A crash leaves them in progress until the lease expires.
update {queue}
set state = case{or_blocked} when :delay > 0 then 'scheduled' else 'ready' end,
    due_at = case when :delay > 0 then {now} + cast(:delay * 1000000 as integer) else due_at end,
    attempts = attempts - 1,
    token = null,
    lease_until = null{out_of_run}
where id in (select value from json_each(:ids)) and token = :token and cancelled_at is null
returning id, state = 'blocked';

-- name: extend
-- Index: the primary key. Locks: the database. A crash leaves all of them extended, or none.
update {queue}
set lease_until = {now} + cast(:lease * 1000000 as integer)
where id in (select value from json_each(:ids)) and token = :token
returning id, lease_until;

-- name: cancel
-- Returns each message, and whether it was told. Index: the primary key. Locks: the database. All statements commit
-- together: a crash leaves all or nothing.
-- name: cancel.find
select id, state = 'in_progress' from {queue} where id in (select value from json_each(:ids));
-- name: cancel.change
update {queue}
set cancelled_at = coalesce(cancelled_at, {now})
where id in (select value from json_each(:ids)) and state = 'in_progress';
-- [keep]
insert into {history} (
    {history_row without token},
    outcome
)
select
    {history_row without token with finished_at = {now}},
    'cancelled'
from {queue}
where id in (select value from json_each(:ids)) and state <> 'in_progress';
-- [end]
delete from {queue}
where id in (select value from json_each(:ids)) and state <> 'in_progress';

-- name: cancel_held
-- If :token is null, those whose lease has expired. :error is kept. Index: the primary key. Locks: the database. All
-- statements commit together: a crash leaves all or nothing.
update {queue}
set errors = {errors_and error=:error}
where id in (select value from json_each(:ids)) and cancelled_at is not null
    and (token = :token or (:token is null and lease_until <= {now})) and :error is not null;
-- [keep]
insert into {history} (
    {history_row without token},
    outcome
)
select
    {history_row without token with finished_at = {now}},
    'cancelled'
from {queue}
where id in (select value from json_each(:ids)) and cancelled_at is not null
    and (token = :token or (:token is null and lease_until <= {now}));
-- [end]
delete from {queue}
where id in (select value from json_each(:ids)) and cancelled_at is not null
    and (token = :token or (:token is null and lease_until <= {now}))
returning id;

-- name: told
-- Index: the primary key. Locks: none.
select id from {queue} where id in (select value from json_each(:ids)) and cancelled_at is not null;

-- name: holder
-- Index: the primary key. Locks: none.
select token from {queue} where id = :id and state = 'in_progress' and lease_until is not null;

-- name: reschedule
-- Index: the primary key. Locks: the database. A crash leaves it as it was.
update {queue}
set state = case
        when state = 'blocked' or coalesce(:due, :delay) is null then state
        when coalesce(:due, {now} + cast(:delay * 1000000 as integer)) > {now} then 'scheduled'
        else 'ready'
    end,
    due_at = coalesce(:due, {now} + cast(:delay * 1000000 as integer), due_at),
    priority = coalesce(:priority, priority)
where id = :id and state in ('ready', 'scheduled', 'blocked')
returning id;
