-- Maintenance of a queue: sweep, expire, redrive, purge, and moves of dead letters.

-- name: put_back
-- Put back, as a dead letter, a message that was taken in this transaction and whose payload cannot be read, with its
-- key.
-- Indexes: the primary keys. Locks: the rows. A crash before the commit leaves it where it was before it was taken.
insert into {queue} (
    {queue_row without token lease_until producer}
)
values (
    {queue_values without token lease_until producer with
        state = 'dead'
        first_popped_at = :popped_at}
);
insert into {live_keys} (dedup_key, id)
select dedup_key, id from {queue} force index (primary) where id = :id and dedup_key is not null;

-- name: sweep
-- Up to :n messages that are due, and up to :n whose lease has expired, become ready. The latter become dead letters if
-- they have no attempts left. The expired lease is kept as an error of the attempt.
-- The first statement finds messages without locks, and mostly none: one round trip. The second one locks by their ids
-- those that are still due or expired, and skips locked rows; it returns which of them were told to stop, which
-- cancel_held ends. The others change them.
-- Indexes: {table}__state, the primary key. A crash leaves all or nothing.
-- name: sweep.find
(
    select id from {queue} force index ({table}__state)
    where state = 'scheduled' and sweep_at <= {now} order by sweep_at limit :n
)
union all
(
    select id from {queue} force index ({table}__state)
    where state = 'in_progress' and sweep_at <= {now} order by sweep_at limit :n
);
-- name: sweep.lock
select message.id, message.cancelled_at is not null as told
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where sweep_at <= {now}
for update skip locked;
-- name: sweep.change
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = case when attempts >= :max_attempts{in_time} then 'dead'{or_blocked} else 'ready' end,
    errors = {errors_and error='lease expired'},
    token = null,
    lease_until = null{out_of_run}
where state = 'in_progress' and cancelled_at is null;
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = 'ready'
where state = 'scheduled';

-- name: move_dead
-- Index: the primary key. Locks: the rows. In one transaction with the failure: a crash leaves the message in progress.
insert into {target} (
    {queue_row without id token lease_until dedup_key}
)
select
    {queue_row without id token lease_until dedup_key with
        state = '{moved_dead}'
        attempts = 0
        due_at = {now}
        headers = {origin_header}}
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and state = 'dead'
order by message.id;
delete {queue}, {live_keys}
from {given} straight_join {queue} force index (primary) on {queue}.id = given.id and state = 'dead'
{with_key};

-- name: expire
-- The first statement finds messages without locks. The second one locks by their ids those that still wait, and skips
-- locked rows. The others move them.
-- Index: {table}__expires. Locks: the rows. A crash leaves all or nothing.
-- name: expire.find
select id from (
    (
        select id from {queue} force index ({table}__expires)
        where state = 'blocked' and expires_at <= {now} order by expires_at limit :n
    )
    union all
    (
        select id from {queue} force index ({table}__expires)
        where state = 'ready' and expires_at <= {now} order by expires_at limit :n
    )
    union all
    (
        select id from {queue} force index ({table}__expires)
        where state = 'scheduled' and expires_at <= {now} order by expires_at limit :n
    )
) as waiting
limit :n;
-- name: expire.lock
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where {waiting} and expires_at <= {now}
for update skip locked;
-- name: expire.change
-- [keep]
insert into {history} (
    {history_row without token}, outcome
)
select
    {history_row without token with
        id = message.id
        finished_at = {now}}, 'expired'
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
for update;
delete {queue}, {live_keys}
from {given} straight_join {queue} force index (primary) on {queue}.id = given.id
{with_key};
-- [else]
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = 'dead',
    errors = {errors_and error='expired'};
-- [end]

-- name: redrive
-- Found, locked by their ids (locked ones are skipped), changed. Index: {table}__state.
-- A crash leaves all of a batch done, or nothing.
-- name: redrive.find
select id from {queue} force index ({table}__state)
where state = 'dead' and sweep_at is null and id > :after
order by id
limit :n;
-- name: redrive.lock
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and state = 'dead'
for update skip locked;
-- name: redrive.change
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
-- [dependencies]
set state = case when {still_waits of=message} then '{pushed_scheduled}' else '{pushed_ready}' end, attempts = 0,
    due_at = case when {still_waits of=message} then cast(:due as datetime(6)) else {redriven_due} end{no_expiry};
-- [else]
set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry};
-- [end]

-- name: redrive_ids
-- Index: the primary key. Locks: the rows. A crash leaves all or nothing.
-- name: redrive_ids.lock
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and state = 'dead'
for update;
-- name: redrive_ids.change
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
-- [dependencies]
set state = case when {still_waits of=message} then '{pushed_scheduled}' else '{pushed_ready}' end, attempts = 0,
    due_at = case when {still_waits of=message} then cast(:due as datetime(6)) else {redriven_due} end{no_expiry};
-- [else]
set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry};
-- [end]

-- name: move_back
-- The first statement finds and locks them, the others move them. Index: the primary key.
-- Locks: the rows; locked rows are skipped. A crash leaves all moved, or none.
-- name: move_back.find
select message.id
from {given} straight_join {target} as message force index (primary) on message.id = given.id
where state in ('ready', 'scheduled', 'blocked', 'dead')
for update skip locked;
-- name: move_back.insert
insert into {queue} (
    token,
    {queue_row without id token lease_until}
)
select
    {new_keys},
    {queue_row without id token lease_until with
        state = '{pushed_ready}'
        attempts = 0
        due_at = {redriven_due}
        dedup_key = {origin_key}}
from {given} straight_join {target} as message force index (primary) on message.id = given.id
order by message.id;
{take_new_keys}
-- name: move_back.delete
delete {target}, {target_live_keys}
from {given} straight_join {target} force index (primary) on {target}.id = given.id
{with_target_key};

-- name: purge
-- Delete up to :n messages that are {state}, in the order of the index. Index: {table}__state.
-- Found, locked by their ids, deleted: bounded, and passing over locked rows, so that no consumer waits.
-- A crash keeps what was deleted before.
-- name: purge.find
select id from {queue} force index ({table}__state) where state = '{state}' order by sweep_at, id limit :n;
-- name: purge.lock
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and state = '{state}'
for update skip locked;
-- name: purge.change
delete {queue}, {live_keys}
from {given} straight_join {queue} force index (primary) on {queue}.id = given.id
{with_key};

-- name: purge_ids
-- The first statement finds them. Index: the primary key. Locks: the rows.
-- name: purge_ids.lock
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and state = '{state}'
for update;
-- name: purge_ids.change
delete {queue}, {live_keys}
from {given} straight_join {queue} force index (primary) on {queue}.id = given.id
{with_key};

-- name: purge_history
-- Delete up to :n messages from the history that were finished, and as many that were lost, :age seconds ago or longer.
-- Index: {table}__finished. Locks: the rows of one bounded batch, by their ids; locked rows are skipped.
-- name: purge_history.find
(
    select id from {history} force index ({table}__finished)
    where finished_at <= {now} - interval :age second
    order by finished_at
    limit :n
)
union all
(
    select id from {history} force index ({table}__finished)
    where finished_at is null and popped_at <= {now} - interval :age second
    limit :n
);
-- name: purge_history.lock
select message.id
from {given} straight_join {history} as message force index (primary) on message.id = given.id
for update skip locked;
-- name: purge_history.change
delete {history} from {given} straight_join {history} force index (primary) on {history}.id = given.id;

-- name: purge_history_ids
-- Index: the primary key. Locks: the rows of one bounded batch.
delete {history}
from {given} straight_join {history} force index (primary) on {history}.id = given.id;
