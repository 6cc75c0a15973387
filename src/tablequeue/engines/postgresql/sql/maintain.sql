-- Maintenance of a queue: sweep, expire, redrive, purge, and moves of dead letters.

-- name: put_back
-- Put back, as a dead letter, a message that was taken in this transaction and whose payload cannot be read.
-- Index: the primary key. Locks: the row. A crash before the commit leaves it where it was before it was taken.
insert into {queue} (
    {queue_row without token lease_until producer}
)
values (
    {queue_values without token lease_until producer with
        state = 'dead'
        first_popped_at = cast(:popped_at as timestamptz)}
);

-- name: sweep
-- Up to :n messages that are due, and as many whose lease has expired, become ready; the latter become dead
-- letters instead if their last attempt is spent. A lost lease is an error of the attempt. One that was told to stop
-- ends as cancelled.
-- Only those of the last :since_sweep seconds, if given: dead entries before them are not walked again (walks.py).
-- Indexes: {table}__scheduled, {table}__in_progress. Locks: the rows; locked rows are skipped. A crash leaves all or
-- nothing.
with due as (
    select id from {queue}
    where state = 'scheduled' and due_at <= {now} and due_at > {since_sweep}
    order by due_at
    limit :n
    for update skip locked
), expired as (
    select id, cancelled_at from {queue}
    where state = 'in_progress' and lease_until <= {now} and lease_until > {since_sweep}
    order by lease_until
    limit :n
    for update skip locked
), moved as (
    update {queue}
    set state = case
            when state = 'in_progress' and attempts >= :max_attempts{in_time} then 'dead'{or_blocked}
            else 'ready'
        end,
        errors = case
            when state = 'in_progress' then {errors_and error='lease expired'}
            else errors
        end,
        token = null,
        lease_until = null{out_of_run}
    where id = any(array(select id from due union all select id from expired where cancelled_at is null))
    returning id
), cancelled as (
    delete from {queue}
    where id = any(array(select id from expired where cancelled_at is not null))
    returning *, {errors_and error='lease expired'} as all_errors
-- [keep]
), kept as (
    insert into {history} (
        {history_row without token},
        outcome
    )
    select
        {history_row without token with
            finished_at = {now}
            errors = all_errors},
        'cancelled'
    from cancelled
-- [end]
)
select id from moved
union all
select id from cancelled;

-- name: move_dead
-- Index: the primary key. Locks: the rows. In one transaction with the failure: a crash leaves the message in progress.
with dead as (
    delete from {queue} where id = any(cast(:ids as bigint[])) and state || '' = 'dead' returning *
)
insert into {target} (
    {queue_row without id token lease_until dedup_key}
)
select
    {queue_row without id token lease_until dedup_key with
        state = '{moved_dead}'
        attempts = 0
        due_at = {now}
        headers = {origin_header}}
from dead
order by id;

-- name: expire
-- Index: {table}__expires. Locks: the rows; locked rows are skipped. A crash leaves all or nothing.
-- [keep]
with expired as (
    delete from {queue}
    where id = any(array(
        select id from {queue}
        where {waiting} and expires_at <= {now}
        order by expires_at
        limit :n
        for update skip locked
    ))
    returning *
)
insert into {history} (
    {history_row without token}, outcome
)
select
    {history_row without token with finished_at = {now}}, 'expired'
from expired
returning id;
-- [none]
update {queue}
set state = 'dead',
    errors = {errors_and error='expired'}
where id = any(array(
    select id from {queue}
    where {waiting} and expires_at <= {now}
    order by expires_at
    limit :n
    for update skip locked
))
returning id;
-- [end]

-- name: redrive
-- Index: {table}__dead. Locks: the rows. A crash leaves all of a batch done, or nothing.
with redriven as (
-- [dependencies]
    update {queue} as message
    set state = case when {still_waits of=message} then '{pushed_scheduled}' else '{pushed_ready}' end, attempts = 0,
        due_at = case when {still_waits of=message} then cast(:due as timestamptz) else {redriven_due} end{no_expiry}
-- [else]
    update {queue}
    set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry}
-- [end]
    where id = any(array(
        select id from {queue} where state = 'dead' and id > :after order by id limit :n for update skip locked
    ))
    returning id
)
select id, {waited_for} as waited_for from redriven;

-- name: redrive_ids
-- Index: the primary key, and not that of the dead letters beside it (state || '': see promote). Locks: the rows.
-- A crash leaves all or nothing.
with redriven as (
-- [dependencies]
    update {queue} as message
    set state = case when {still_waits of=message} then '{pushed_scheduled}' else '{pushed_ready}' end, attempts = 0,
        due_at = case when {still_waits of=message} then cast(:due as timestamptz) else {redriven_due} end{no_expiry}
-- [else]
    update {queue}
    set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry}
-- [end]
    where id = any(cast(:ids as bigint[])) and state || '' = 'dead'
    returning id
)
select id, {waited_for} as waited_for from redriven;

-- name: move_back
-- The first statement finds and locks them, the others move them. Index: the primary key.
-- Locks: the rows; locked rows are skipped. A crash leaves all moved, or none.
-- name: move_back.find
select id from {target}
where id = any(cast(:ids as bigint[])) and state || '' in ('ready', 'scheduled', 'blocked', 'dead')
for update skip locked;
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
where id = any(cast(:ids as bigint[]))
order by id;
-- name: move_back.delete
delete from {target} where id = any(cast(:ids as bigint[]));

-- name: purge
-- Delete up to :n messages that are {state}, lowest id first. Index: {table}__{state}.
-- Bounded, and locked rows are skipped, so that no consumer waits. What was deleted before a crash stays deleted.
delete from {queue}
where id = any(array(
    select id from {queue} where state = '{state}' order by id limit :n for update skip locked
));

-- name: purge_ids
-- Index: the primary key.
delete from {queue}
where id = any(cast(:ids as bigint[])) and state = '{state}';

-- name: purge_history
-- Delete up to :n messages from the history that were finished, or lost, :age seconds ago or longer.
-- Index: {table}__finished. Locks: the rows of one bounded batch; locked rows are skipped.
-- Two looks, each in the order of that index: with an `or`, or without the order, a generic plan reads the whole
-- history, in the expectation that a third of it is old enough.
delete from {history}
where id = any(array(
    select id
    from (
        select id from (
            select id from {history}
            where finished_at <= {now} - cast(:age as float8) * interval '1 second'
            order by finished_at
            limit :n
            for update skip locked
        ) as finished
        union all
        select id from (
            select id from {history}
            where finished_at is null and popped_at <= {now} - cast(:age as float8) * interval '1 second'
            order by finished_at
            limit :n
            for update skip locked
        ) as lost
    ) as old
    limit :n
));

-- name: purge_history_ids
-- Index: the primary key. Locks: the rows of one bounded batch.
delete from {history}
where id = any(cast(:ids as bigint[]));
