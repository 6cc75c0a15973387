-- Maintenance of a queue: sweep, expire, redrive, purge, and moves of dead letters.

-- name: sweep
-- Up to :n messages that are due, and as many whose lease has expired, become ready; the latter become dead
-- letters instead if their last attempt is spent. A lost lease is an error of the attempt. One that was told to stop
-- stays as it is, in progress: cancel_held ends it.
-- Indexes: {table}__scheduled, {table}__in_progress. A crash leaves all or nothing.
update {queue}
set state = case
        when cancelled_at is not null then state
        when state = 'in_progress' and attempts >= :max_attempts{in_time} then 'dead'{or_blocked}
        else 'ready'
    end,
    errors = case
        when state = 'in_progress' and cancelled_at is null then {errors_and error='lease expired'}
        else errors
    end,
    token = case when cancelled_at is not null then token end,
    lease_until = case when cancelled_at is not null then lease_until end{out_of_run_if_swept}
where id in (
        select id from {queue} where state = 'scheduled' and due_at <= {now} order by due_at limit :n
    )
    or id in (
        select id from {queue} where state = 'in_progress' and lease_until <= {now} order by lease_until limit :n
    )
returning id, state;

-- name: move_dead
-- Index: the primary key. Locks: the database. In one transaction with the failure: a crash leaves the message in
-- progress.
insert into {target} (
    {queue_row without id token lease_until dedup_key}
)
select
    {queue_row without id token lease_until dedup_key with
        state = '{moved_dead}'
        attempts = 0
        due_at = {now}
        headers = {origin_header}}
from {queue}
where id in (select value from json_each(:ids)) and state = 'dead'
order by id;
delete from {queue}
where id in (select value from json_each(:ids)) and state = 'dead';

-- name: expire
-- Index: {table}__expires. Locks: the database. The statements commit together: a crash leaves all or nothing.
-- [keep]
insert into {history} (
    {history_row without token}, outcome
)
select
    {history_row without token with finished_at = {now}}, 'expired'
from {queue}
where id in (select id from {queue} where {waiting} and expires_at <= {now} order by expires_at limit :n);
delete from {queue}
where id in (select id from {queue} where {waiting} and expires_at <= {now} order by expires_at limit :n)
returning id;
-- [else]
update {queue}
set state = 'dead',
    errors = {errors_and error='expired'}
where id in (select id from {queue} where {waiting} and expires_at <= {now} order by expires_at limit :n)
returning id;
-- [end]

-- name: redrive
-- Index: {table}__dead. A crash leaves all of a batch done, or nothing.
-- [dependencies]
update {queue} as message
set state = case when {still_waits of=message} then '{pushed_scheduled}' else '{pushed_ready}' end, attempts = 0,
    due_at = case when {still_waits of=message} then :due else {redriven_due} end{no_expiry}
-- [else]
update {queue}
set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry}
-- [end]
where id in (select id from {queue} where state = 'dead' and id > :after order by id limit :n)
returning id;

-- name: redrive_ids
-- Index: the primary key. A crash leaves all or nothing.
-- [dependencies]
update {queue} as message
set state = case when {still_waits of=message} then '{pushed_scheduled}' else '{pushed_ready}' end, attempts = 0,
    due_at = case when {still_waits of=message} then :due else {redriven_due} end{no_expiry}
-- [else]
update {queue}
set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry}
-- [end]
where id in (select value from json_each(:ids)) and state = 'dead'
returning id;

-- name: move_back
-- The first statement finds and locks them, the others move them. Index: the primary key. Locks: the database.
-- A crash leaves all moved, or none.
-- name: move_back.find
select id from {target}
where id in (select value from json_each(:ids)) and state in ('ready', 'scheduled', 'blocked', 'dead');
-- name: move_back.insert
insert into {queue} (
    {queue_row without id token lease_until}
)
select
    {queue_row without id token lease_until with
        state = '{pushed_ready}'
        attempts = 0
        due_at = {redriven_due}
        dedup_key = {origin_key}}
from {target}
where id in (select value from json_each(:ids))
order by id;
-- name: move_back.delete
delete from {target}
where id in (select value from json_each(:ids));

-- name: purge
-- Delete up to :n messages that are {state}, lowest id first. Index: {table}__{state}.
-- Bounded, so that consumers get their turn between two batches. What was deleted before a crash stays deleted.
delete from {queue}
where id in (select id from {queue} where state = '{state}' order by id limit :n);

-- name: purge_ids
-- Index: the primary key.
delete from {queue}
where id in (select value from json_each(:ids)) and state = '{state}';

-- name: purge_history
-- Delete up to :n messages from the history that were finished, or lost, :age seconds ago or longer.
-- Index: {table}__finished. Locks: the database, for the length of one bounded batch.
delete from {history}
where id in (
    select id from {history}
    where finished_at <= {now} - cast(:age * 1000000 as integer)
        or (finished_at is null and popped_at <= {now} - cast(:age * 1000000 as integer))
    limit :n
);

-- name: purge_history_ids
-- Index: the primary key. Locks: the database, for one bounded batch.
delete from {history}
where id in (select value from json_each(:ids));
