-- Ranges of a topic's log: how a subscription claims, completes, extends and ends them.

-- name: range_hold
-- The messages of :ids that the range under :token holds: those that have not left it. These are read once: for each
-- message anew, 10,000 of 20,000 took 40 s.
-- Index: {table}__token. Locks: the database.
select ids.value
from {ranges} as ranges
join json_each(:ids) as ids on ids.value between first_offset and last_offset
where token = :token and lease_until is not null
    and ids.value not in (
        select gone.value from {ranges} as held, json_each(held.left_ids) as gone where held.token = :token
    );

-- name: range_detach
-- The messages of :ids, which ranges under :token hold, become rows of the subscription's queue: ready after :delay
-- seconds, or dead letters if :attempts is :max_attempts.
-- Index: {table}__token. Locks: the database. In one transaction with range_mark.
-- A seek leaves no message both detached and in the log. Older versions did: then this is its state, unless a consumer
-- holds it detached.
delete from {history} where id in (select value from json_each(:ids));
insert into {queue} (
    id, state, attempts, pushed_at, due_at, first_popped_at, popped_at, group_key, producer, consumer, headers, errors,
    payload
)
select
    log.id,
    case when :attempts >= :max_attempts then 'dead' when :delay > 0 then 'scheduled' else 'ready' end,
    :attempts, log.pushed_at,
    case when :attempts < :max_attempts and :delay > 0 then {now} + cast(:delay * 1000000 as integer) end,
    popped_at, popped_at, log.group_key, log.producer, consumer, log.headers,
    case
        when :error is not null then json_array(
            json_object('attempt', :attempts, 'at', {now}, 'consumer', consumer, 'error', :error)
        )
    end,
    log.payload
from {ranges} as ranges
join {log} as log on log.id between first_offset and last_offset
where token = :token and lease_until is not null and log.id in (select value from json_each(:ids))
on conflict (id) do update set
    state = excluded.state, attempts = excluded.attempts, due_at = excluded.due_at, errors = excluded.errors
where {queue}.state <> 'in_progress';
update {ranges}
set apart_ids = (
    select json_group_array(value) from (
        select value from json_each(coalesce(apart_ids, '[]'))
        union all
        select value from json_each(:ids) where value between first_offset and last_offset
    )
)
where token = :token and lease_until is not null
    and exists (select 1 from json_each(:ids) where value between first_offset and last_offset);

-- name: range_mark
-- Mark the messages of :ids, which ranges under :token hold, as left. A range is finished when all have left it.
-- Index: {table}__token. Locks: the database. A crash leaves them in progress until the lease expires.
update {ranges}
set finished_at = {now}, left_ids = (
    select json_group_array(value) from (
        select value from json_each(coalesce(left_ids, '[]'))
        union all
        select value from json_each(:ids) where value between first_offset and last_offset
    )
)
where token = :token and lease_until is not null
    and exists (select 1 from json_each(:ids) where value between first_offset and last_offset);
update {ranges}
set left_ids = null, lease_until = null
where token = :token and lease_until is not null and messages = json_array_length(left_ids);

-- name: range_expired
-- Up to :n ranges whose lease has expired. Index: {table}__lease. Locks: the database.
select id from {ranges} where lease_until <= {now} order by lease_until limit :n;

-- name: range_expire
-- The messages that have not left range :id, whose lease has expired, become rows of the subscription's queue: ready,
-- or dead letters if one attempt was all they had. The range is not in progress any more.
-- Index: the primary keys. Locks: the database. A crash leaves all or nothing.
delete from {history}
where id in (
    select log.id
    from {ranges} as ranges
    join {log} as log on log.id between first_offset and last_offset
    where ranges.id = :id and log.id not in (
        select gone.value from {ranges} as held, json_each(held.left_ids) as gone where held.id = :id
    )
);
insert into {queue} (
    id, state, attempts, pushed_at, first_popped_at, popped_at, group_key, producer, consumer, headers, errors, payload
)
select
    log.id, case when :max_attempts <= 1 then 'dead' else 'ready' end, 1, log.pushed_at, popped_at, popped_at,
    log.group_key, log.producer, consumer, log.headers,
    json_array(json_object('attempt', 1, 'at', {now}, 'consumer', consumer, 'error', 'lease expired')),
    log.payload
from {ranges} as ranges
join {log} as log on log.id between first_offset and last_offset
where ranges.id = :id and log.id not in (
    select gone.value from {ranges} as held, json_each(held.left_ids) as gone where held.id = :id
)
on conflict (id) do update set
    state = excluded.state, attempts = excluded.attempts, errors = excluded.errors
where {queue}.state <> 'in_progress';
update {ranges} set lease_until = null where id = :id;

-- name: range_pump
-- Move the next :n messages of the log to the queue of an ordered subscription, and the position past them.
-- A message without a group, which an older log may have, is in the group without a name.
-- Indexes: the primary keys. Locks: the database. A crash leaves all or nothing.
insert into {ranges} (first_offset, last_offset, messages, ids_sum, token, popped_at, finished_at)
select first, last, 0, 0, :token, {now}, {now}
from (
    select first, min(first + :n - 1, (select max(id) from {log})) as last
    from (
        select max(last_offset + 1, (select min(id) from {log})) as first from {ranges} order by id desc limit 1
    )
)
where last >= first;
delete from {history}
where id between (select first_offset from {ranges} where token = :token)
    and (select last_offset from {ranges} where token = :token);
insert into {queue} (id, state, pushed_at, group_key, producer, headers, payload)
select log.id, '{pushed_ready}', log.pushed_at, coalesce(log.group_key, ''), log.producer, log.headers, log.payload
from {ranges} as ranges
join {log} as log on log.id between first_offset and last_offset
where ranges.id = (select max(id) from {ranges}) and ranges.token = :token
on conflict (id) do nothing;

-- name: range_claim
-- Claim the next range of up to :n messages under a new lease: one row for all of them.
-- Index: the primary keys. Locks: the database, for the length of the transaction.
-- A consumer that dies leaves its range in progress; sweep detaches its messages when the lease has expired.
insert into {ranges} (first_offset, last_offset, messages, ids_sum, token, consumer, popped_at, lease_until)
select
    first, last, last - first + 1, (first + last) * (last - first + 1) / 2, :token, :consumer, {now},
    {now} + cast(:lease * 1000000 as integer)
from (
    select first, min(first + :n - 1, (select max(id) from {log})) as last
    from (
        select max(last_offset + 1, (select min(id) from {log})) as first from {ranges} order by id desc limit 1
    )
)
where last >= first and {unpaused};
select
    {claimed of log with
        attempts = 1
        popped_at = popped_at
        lease_until = lease_until
        priority = 0
        dedup_key = null
        due_at = null
        errors = null}
from {ranges} as ranges
join {log} as log on log.id between first_offset and last_offset
where changes() > 0 and ranges.id = last_insert_rowid()
order by log.id;

-- name: range_complete
-- Index: {table}__token. Locks: the database. A crash leaves it in progress until its lease expires.
update {ranges}
set finished_at = {now}, lease_until = null
where token = :token and lease_until is not null and messages = :number and ids_sum = :sum and left_ids is null
returning id;

-- name: range_extend
-- Extend the leases on the ranges under :token that hold messages of :ids: they end :lease seconds from now.
-- Returns these messages.
-- Index: {table}__token. Locks: the database. A crash leaves all of them extended, or none.
update {ranges}
set lease_until = {now} + cast(:lease * 1000000 as integer)
where token = :token and lease_until is not null and exists (
    select 1 from json_each(:ids) as ids
    where ids.value between first_offset and last_offset
        and ids.value not in (
            select gone.value from {ranges} as held, json_each(held.left_ids) as gone where held.token = :token
        )
);
select ids.value, lease_until
from {ranges}
join json_each(:ids) as ids on ids.value between first_offset and last_offset
where token = :token and lease_until is not null
    and ids.value not in (
        select gone.value from {ranges} as held, json_each(held.left_ids) as gone where held.token = :token
    );
