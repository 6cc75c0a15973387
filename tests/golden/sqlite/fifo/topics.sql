-- create_ranges
-- The ranges that a subscription has claimed, in the order of the claims: its history. The next claim
-- begins after the last one. The first row has no messages: it says where the subscription begins, and so does that
-- of a seek.
-- A range with a lease_until is in progress. `left_ids` are the messages that have left it, the last at finished_at:
-- completed before the others; or detached, and in `apart_ids`, too. A range that is finished has no left_ids.
-- When its lease expires, the messages that have not left it are detached, without being in `apart_ids`.
-- Runs in one transaction: a crash leaves nothing.
create table tq_events__s1__ranges (
    id integer primary key,
    first_offset integer not null,
    last_offset integer not null,
    messages integer not null,
    ids_sum integer not null,
    token text,
    consumer text,
    popped_at integer not null,
    lease_until integer,
    finished_at integer,
    left_ids text check (left_ids is null or json_valid(left_ids)),
    apart_ids text check (apart_ids is null or json_valid(apart_ids))
) strict;
create index tq_events__s1__token on tq_events__s1__ranges (token) where lease_until is not null;
create index tq_events__s1__lease on tq_events__s1__ranges (lease_until) where lease_until is not null;
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (:start, :start - 1, 0, 0, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000));

-- create_topic
-- The log of a topic. Its rows are never changed.
-- One transaction writes at a time. So the ids have the order of the commits, and no gaps: the offset of a message is
-- its id. Runs in one transaction: a crash leaves nothing.
create table tq_events (
    id integer primary key autoincrement,
    pushed_at integer not null,
    producer text,
    group_key text,
    headers text check (headers is null or json_valid(headers)),
    payload text not null check (json_valid(payload))
) strict;

-- create_topic_groups
-- The log of a topic with groups refuses a message without one, from whomever: an ordered
-- subscription needs it.
-- It is a trigger, because SQLite adds no constraint to a table that is there. Locks: the database. Runs in one
-- transaction: a crash leaves nothing.
create trigger tq_events__grouped before insert on tq_events when new.group_key is null
    begin
        select raise(abort, 'the topic has groups, and none is given');
    end;

-- drop_ranges
-- Drop the ranges of a subscription.
-- It waits for transactions that use the table. In one transaction with its queue: a crash leaves all or nothing. On
-- MariaDB and MySQL, the catalogue forgot the subscription before: a crash leaves a table that the next create of this
-- name drops.
drop table if exists tq_events__s1__ranges;

-- drop_topic
-- Drop the log of a topic, with its messages.
drop table if exists tq_events;

-- publish_topic
-- Push to a log what the :attempts of the write :write staged, in the order of their parts, all at once.
-- Locks: the database. One transaction with writer_advance: a crash publishes none.
insert into tq_events (pushed_at, producer, group_key, headers, payload)
select coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), :producer, group_key, headers, payload
from tq_events__staged
where write_id = :write and attempt in (select value from json_each(:attempts))
order by part, place;

-- range_absorb
-- Delete the detached messages that a seek decides about: those that no consumer has had, at any offset,
-- because they are in the log; and those with an offset from :start on that the log still has, because they come
-- again. With :force, the latter even if they are in progress: their leases end.
-- A message before :start that some consumer has had stays, and so does one that the log does not have any more.
-- Index: the primary keys; all detached messages are read. Locks: the database. In one transaction with range_seek.
delete from tq_events__s1
where (:force or state <> 'in_progress')
    and (first_popped_at is null or (id >= :start and id in (select id from tq_events)));

-- range_claim
-- Claim the next range of up to :n messages under a new lease: one row for all of them.
-- Index: the primary keys. Locks: the database, for the length of the transaction.
-- A consumer that dies leaves its range in progress; sweep detaches its messages when the lease has expired.
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, token, consumer, popped_at, lease_until)
select
    first, last, last - first + 1, (first + last) * (last - first + 1) / 2, :token, :consumer, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) + cast(:lease * 1000000 as integer)
from (
    select first, min(first + :n - 1, (select max(id) from tq_events)) as last
    from (
        select max(last_offset + 1, (select min(id) from tq_events)) as first from tq_events__s1__ranges order by id desc limit 1
    )
)
where last >= first and not exists (select 1 from tq__paused where name = 'tq_events__s1' and until > coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000));
select
    log.id, log.payload, log.headers, 1, log.pushed_at, popped_at, lease_until, 0, log.group_key, null, null, null
from tq_events__s1__ranges as ranges
join tq_events as log on log.id between first_offset and last_offset
where changes() > 0 and ranges.id = last_insert_rowid()
order by log.id;

-- range_complete
-- Complete the range that is held under :token: all :number messages of it, which have this :sum of
-- ids.
-- Index: tq_events__s1__token. Locks: the database. A crash leaves it in progress until its lease expires.
update tq_events__s1__ranges
set finished_at = coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), lease_until = null
where token = :token and lease_until is not null and messages = :number and ids_sum = :sum and left_ids is null
returning id;

-- range_detach
-- The messages of :ids, which ranges under :token hold, become rows of the subscription's queue: ready after :delay
-- seconds, or dead letters if :attempts is :max_attempts.
-- Index: tq_events__s1__token. Locks: the database. In one transaction with range_mark.
-- A seek leaves no message both detached and in the log. Older versions did: then this is its state, unless a consumer
-- holds it detached.
delete from tq_events__s1_history where id in (select value from json_each(:ids));
insert into tq_events__s1 (
    id, state, attempts, pushed_at, due_at, first_popped_at, popped_at, group_key, producer, consumer, headers, errors,
    payload
)
select
    log.id,
    case when :attempts >= :max_attempts then 'dead' when :delay > 0 then 'scheduled' else 'ready' end,
    :attempts, log.pushed_at,
    case when :attempts < :max_attempts and :delay > 0 then coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) + cast(:delay * 1000000 as integer) end,
    popped_at, popped_at, log.group_key, log.producer, consumer, log.headers,
    case
        when :error is not null then json_array(
            json_object('attempt', :attempts, 'at', coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), 'consumer', consumer, 'error', :error)
        )
    end,
    log.payload
from tq_events__s1__ranges as ranges
join tq_events as log on log.id between first_offset and last_offset
where token = :token and lease_until is not null and log.id in (select value from json_each(:ids))
on conflict (id) do update set
    state = excluded.state, attempts = excluded.attempts, due_at = excluded.due_at, errors = excluded.errors
where tq_events__s1.state <> 'in_progress';
update tq_events__s1__ranges
set apart_ids = (
    select json_group_array(value) from (
        select value from json_each(coalesce(apart_ids, '[]'))
        union all
        select value from json_each(:ids) where value between first_offset and last_offset
    )
)
where token = :token and lease_until is not null
    and exists (select 1 from json_each(:ids) where value between first_offset and last_offset);

-- range_due
-- Whether a sweep has something to do: for ranges whose lease has expired, for detached messages that are
-- due or abandoned; and whether a detached message is ready.
-- Indexes: tq_events__s1__lease, those of the states; one entry of each. Locks: none.
select
    exists (select 1 from tq_events__s1__ranges where lease_until <= coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)),
    exists (select 1 from tq_events__s1 where state = 'scheduled' and due_at <= coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000))
    or exists (select 1 from tq_events__s1 where state = 'in_progress' and lease_until <= coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)),
    exists (select 1 from tq_events__s1 where state = 'ready');

-- range_end_leases
-- End the leases of the ranges that have messages with an offset from :start on, for a seek that is
-- forced. Their messages are then detached as if it had expired.
-- Index: tq_events__s1__lease. Locks: the database. In one transaction with range_seek.
update tq_events__s1__ranges set lease_until = coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) where lease_until > coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) and last_offset >= :start;

-- range_expire
-- The messages that have not left range :id, whose lease has expired, become rows of the subscription's queue: ready,
-- or dead letters if one attempt was all they had. The range is not in progress any more.
-- Index: the primary keys. Locks: the database. A crash leaves all or nothing.
delete from tq_events__s1_history
where id in (
    select log.id
    from tq_events__s1__ranges as ranges
    join tq_events as log on log.id between first_offset and last_offset
    where ranges.id = :id and log.id not in (
        select gone.value from tq_events__s1__ranges as held, json_each(held.left_ids) as gone where held.id = :id
    )
);
insert into tq_events__s1 (
    id, state, attempts, pushed_at, first_popped_at, popped_at, group_key, producer, consumer, headers, errors, payload
)
select
    log.id, case when :max_attempts <= 1 then 'dead' else 'ready' end, 1, log.pushed_at, popped_at, popped_at,
    log.group_key, log.producer, consumer, log.headers,
    json_array(json_object('attempt', 1, 'at', coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), 'consumer', consumer, 'error', 'lease expired')),
    log.payload
from tq_events__s1__ranges as ranges
join tq_events as log on log.id between first_offset and last_offset
where ranges.id = :id and log.id not in (
    select gone.value from tq_events__s1__ranges as held, json_each(held.left_ids) as gone where held.id = :id
)
on conflict (id) do update set
    state = excluded.state, attempts = excluded.attempts, errors = excluded.errors
where tq_events__s1.state <> 'in_progress';
update tq_events__s1__ranges set lease_until = null where id = :id;

-- range_expired
-- Up to :n ranges whose lease has expired. Index: tq_events__s1__lease. Locks: the database.
select id from tq_events__s1__ranges where lease_until <= coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) order by lease_until limit :n;

-- range_extend
-- Extend the leases on the ranges under :token that hold messages of :ids: they end :lease seconds from now.
-- Returns these messages.
-- Index: tq_events__s1__token. Locks: the database. A crash leaves all of them extended, or none.
update tq_events__s1__ranges
set lease_until = coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) + cast(:lease * 1000000 as integer)
where token = :token and lease_until is not null and exists (
    select 1 from json_each(:ids) as ids
    where ids.value between first_offset and last_offset
        and ids.value not in (
            select gone.value from tq_events__s1__ranges as held, json_each(held.left_ids) as gone where held.token = :token
        )
);
select ids.value, lease_until
from tq_events__s1__ranges
join json_each(:ids) as ids on ids.value between first_offset and last_offset
where token = :token and lease_until is not null
    and ids.value not in (
        select gone.value from tq_events__s1__ranges as held, json_each(held.left_ids) as gone where held.token = :token
    );

-- range_find
-- Message :id, if it is in the log, and it is ready or a range in progress holds it. After a seek the last
-- range counts.
-- Index: the primary keys; the ranges are read backwards until one has it. Locks: none.
select
    log.id, log.payload, log.headers, case when popped_at is null then 'ready' else 'in_progress' end as state,
    popped_at is not null as attempts, 0 as priority, log.group_key, null as dedup_key, log.producer, consumer,
    log.pushed_at, null as due_at, popped_at as first_popped_at, popped_at, lease_until, null as finished_at,
    null as errors
from tq_events as log
left join tq_events__s1__ranges as held on held.id = (
    select id from tq_events__s1__ranges
    where :id between first_offset and last_offset
        and :id <= (select last_offset from tq_events__s1__ranges order by id desc limit 1)
    order by id desc
    limit 1
)
where log.id = :id and (
    :id > (select last_offset from tq_events__s1__ranges order by id desc limit 1)
    or (lease_until is not null and :id not in (select value from json_each(coalesce(left_ids, '[]'))))
);

-- range_finished
-- The last :n messages with ids from :low to :high finished from :since on and before :until, highest
-- id first: those that ranges finished (with :final only those that are not in progress any more), if the log still
-- has them, and those of the history of the subscription. Messages that left a range have the time of the last ones
-- that did. If a message was finished again after a seek, its last pop counts.
-- Of the ranges only the first ones are read into, which have so many finished messages, whatever was read again.
-- Index: the primary keys; all ranges are read. Locks: none.
with spans as materialized (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, messages - (
            coalesce(json_array_length(left_ids), case when finished_at is not null then messages else 0 end)
            - json_array_length(coalesce(apart_ids, '[]'))
        ) as others,
        max(first_offset, :low) as low, min(last_offset, :high) as high
    from tq_events__s1__ranges
    where (
        coalesce(json_array_length(left_ids), case when finished_at is not null then messages else 0 end)
        - json_array_length(coalesce(apart_ids, '[]'))
    ) > 0 and (lease_until is null or not :final)
        and finished_at >= :since and finished_at < :until
        and first_offset <= :high and last_offset >= :low
), counted as (
    select low, sure, sum(sure) over (order by low desc rows unbounded preceding) as so_far
    from (select low, max(high - low + 1 - others, 0) as sure from spans) as each_one
), reach as (
    select min(low) as low
    from counted
    where so_far - sure < :n * (1 + (select count(*) from tq_events__s1__ranges where messages = 0))
)
-- With max() the other columns are those of the row that has the maximum.
select
    id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, max(popped_at) as popped_at, null as lease_until, finished_at, errors
from (
    select
        id, payload, headers, 'finished' as state, 1 as attempts, 0 as priority, group_key, null as dedup_key, producer,
        consumer, pushed_at, null as due_at, popped_at as first_popped_at, popped_at, null as lease_until, finished_at,
        null as errors
    from spans
    join tq_events as log on log.id between spans.low and spans.high
    where high >= (select low from reach)
        and (left_ids is null or log.id in (select value from json_each(left_ids)))
        and (apart_ids is null or log.id not in (select value from json_each(apart_ids)))
    union all
    select * from (
        select
            id, payload, headers,
            coalesce(outcome, case when finished_at is null then 'in_progress' else 'finished' end) as state, attempts,
            priority, group_key, dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
            null as lease_until, finished_at, errors
        from tq_events__s1_history
        where id between :low and :high and finished_at >= :since and finished_at < :until
        order by id desc
        limit :n
    )
) as finished
group by id
order by id desc
limit :n;

-- range_finished_bounds
-- The lowest and the highest id of the ranges that finished messages from :since on and before
-- :until, and of the messages of the subscription's history that were: no other id has such a message.
-- Indexes: the primary keys, tq_events__s1__finished; all ranges are read. Locks: none.
select max(min(low), (select min(id) from tq_events)), max(high)
from (
    select first_offset as low, last_offset as high
    from tq_events__s1__ranges
    where (
        coalesce(json_array_length(left_ids), case when finished_at is not null then messages else 0 end)
        - json_array_length(coalesce(apart_ids, '[]'))
    ) > 0 and finished_at >= :since and finished_at < :until
    union all
    select min(id), max(id) from tq_events__s1_history where finished_at >= :since and finished_at < :until
) as bounds;

-- range_floor
-- What a subscription still needs: the first offset of its ranges in progress, null if there is none; and
-- the one at which its next claim begins.
-- On PostgreSQL, tq_events__trim has the same look. Indexes: tq_events__s1__lease, the primary key. Locks: none.
select (select min(first_offset) from tq_events__s1__ranges where lease_until is not null), last_offset + 1
from tq_events__s1__ranges order by id desc limit 1;

-- range_hold
-- The messages of :ids that the range under :token holds: those that have not left it. These are read once: for each
-- message anew, 10,000 of 20,000 took 40 s.
-- Index: tq_events__s1__token. Locks: the database.
select ids.value
from tq_events__s1__ranges as ranges
join json_each(:ids) as ids on ids.value between first_offset and last_offset
where token = :token and lease_until is not null
    and ids.value not in (
        select gone.value from tq_events__s1__ranges as held, json_each(held.left_ids) as gone where held.token = :token
    );

-- range_live
-- The last :n messages with ids from :low to :high that are live, in any state, highest id first: the detached ones,
-- those that ranges in progress hold, and those that no range has. A detached message comes once.
-- Indexes: the primary keys, tq_events__s1__lease. Locks: none.
-- With max() the other columns are those of the row that has the maximum.
select
    id, payload, headers, state, max(attempts) as attempts, priority, group_key, dedup_key, producer, consumer,
    pushed_at, due_at, first_popped_at, popped_at, lease_until, null as finished_at, errors
from (
    select * from (
        select
            id, state, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, lease_until, group_key,
            dedup_key, producer, consumer, headers, errors, payload
        from tq_events__s1
        where id between :low and :high
        order by id desc
        limit :n
    )
    union all
    select
        log.id, 'in_progress', 1, 0, log.pushed_at, null, popped_at, popped_at, lease_until, log.group_key, null,
        log.producer, consumer, log.headers, null, log.payload
    from tq_events__s1__ranges as ranges
    join tq_events as log on log.id between max(first_offset, :low) and min(last_offset, :high)
    where lease_until is not null and log.id not in (select value from json_each(coalesce(left_ids, '[]')))
    union all
    select * from (
        select
            id, 'ready', 0, 0, pushed_at, null, null, null, null, group_key, null, producer, null, headers, null,
            payload
        from tq_events
        where id between :low and :high and id > (select last_offset from tq_events__s1__ranges order by id desc limit 1)
        order by id desc
        limit :n
    )
) as live
group by id
order by id desc
limit :n;

-- range_live_bounds
-- The lowest and the highest id of the live messages of a subscription, and of ranges in progress.
-- Indexes: the primary keys, tq_events__s1__lease. Locks: none.
select min(low), max(high)
from (
    select min(id) as low, max(id) as high from tq_events__s1
    union all
    select min(first_offset), max(last_offset) from tq_events__s1__ranges where lease_until is not null
    union all
    select min(id), max(id) from tq_events where id > (select last_offset from tq_events__s1__ranges order by id desc limit 1)
) as bounds;

-- range_mark
-- Mark the messages of :ids, which ranges under :token hold, as left. A range is finished when all have left it.
-- Index: tq_events__s1__token. Locks: the database. A crash leaves them in progress until the lease expires.
update tq_events__s1__ranges
set finished_at = coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), left_ids = (
    select json_group_array(value) from (
        select value from json_each(coalesce(left_ids, '[]'))
        union all
        select value from json_each(:ids) where value between first_offset and last_offset
    )
)
where token = :token and lease_until is not null
    and exists (select 1 from json_each(:ids) where value between first_offset and last_offset);
update tq_events__s1__ranges
set left_ids = null, lease_until = null
where token = :token and lease_until is not null and messages = json_array_length(left_ids);

-- range_note
-- Note as a finished range what a :consumer has read by itself, :age seconds long: all before the offset
-- :start. Nothing is noted while ranges are in progress, which are counted.
-- Indexes: the primary key, tq_events__s1__lease. Locks: the database.
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, consumer, popped_at, finished_at)
select
    last_offset + 1, :start - 1, :start - 1 - last_offset, 0, :consumer, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) - cast(:age * 1000000 as integer), coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
from (select last_offset from tq_events__s1__ranges order by id desc limit 1)
where last_offset + 1 < :start and not exists (select 1 from tq_events__s1__ranges where lease_until is not null);
select count(*) from tq_events__s1__ranges where lease_until is not null;

-- range_peek_in_progress
-- The first :n messages of the log with an id above :after that ranges in progress hold.
-- Indexes: tq_events__s1__lease, the primary key. Locks: none.
select
    log.id, log.payload, log.headers, 'in_progress' as state, 1 as attempts, 0 as priority, log.group_key,
    null as dedup_key, log.producer, consumer, log.pushed_at, null as due_at, popped_at as first_popped_at, popped_at,
    lease_until, null as finished_at, null as errors
from tq_events__s1__ranges as ranges
join tq_events as log on log.id between first_offset and last_offset
where lease_until is not null and log.id > :after
    and log.id not in (select value from json_each(coalesce(left_ids, '[]')))
order by log.id
limit :n;

-- range_peek_ready
-- The first :n messages of the log with an id above :after that no range has, from the position of the subscription on.
-- Index: the primary keys. Locks: none.
select
    id, payload, headers, 'ready' as state, 0 as attempts, 0 as priority, group_key, null as dedup_key, producer,
    null as consumer, pushed_at, null as due_at, null as first_popped_at, null as popped_at, null as lease_until,
    null as finished_at, null as errors
from tq_events
where id > :after and id > (select last_offset from tq_events__s1__ranges order by id desc limit 1)
order by id
limit :n;

-- range_position
-- The offset at which the next claim of a subscription begins; and of the last range or seek, its
-- number and its consumer, null of a seek.
-- Index: the primary key. Locks: none.
select last_offset + 1, id, consumer from tq_events__s1__ranges order by id desc limit 1;

-- range_pump
-- Move the next :n messages of the log to the queue of an ordered subscription, and the position past them.
-- A message without a group, which an older log may have, is in the group without a name.
-- Indexes: the primary keys. Locks: the database. A crash leaves all or nothing.
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, token, popped_at, finished_at)
select first, last, 0, 0, :token, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
from (
    select first, min(first + :n - 1, (select max(id) from tq_events)) as last
    from (
        select max(last_offset + 1, (select min(id) from tq_events)) as first from tq_events__s1__ranges order by id desc limit 1
    )
)
where last >= first;
delete from tq_events__s1_history
where id between (select first_offset from tq_events__s1__ranges where token = :token)
    and (select last_offset from tq_events__s1__ranges where token = :token);
insert into tq_events__s1 (id, state, pushed_at, group_key, producer, headers, payload)
select log.id, 'ready', log.pushed_at, coalesce(log.group_key, ''), log.producer, log.headers, log.payload
from tq_events__s1__ranges as ranges
join tq_events as log on log.id between first_offset and last_offset
where ranges.id = (select max(id) from tq_events__s1__ranges) and ranges.token = :token
on conflict (id) do nothing;

-- range_purge
-- Delete the ranges that have no message any more at or after the offset :start, but for the last one, after which the
-- next claim begins. Index: the primary key. Locks: the rows. A crash leaves all or nothing.
delete from tq_events__s1__ranges
where last_offset < :start and lease_until is null and id < (select max(id) from tq_events__s1__ranges);

-- range_remaining
-- How many ranges and detached messages a seek to :start has left where none may be: others have
-- locked them, or they are in progress.
-- Indexes: tq_events__s1__lease, the primary keys; all detached messages are read. Locks: none.
select
    (select count(*) from tq_events__s1__ranges where lease_until is not null and last_offset >= :start)
    + (
        select count(*) from tq_events__s1
        where first_popped_at is null or (id >= :start and id in (select id from tq_events))
    );

-- range_seek
-- Let the next claim begin at :start.
-- The row has no messages. Locks: the database.
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (:start, :start - 1, 0, 0, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000));

-- range_stats
-- The messages of a subscription that are in the log alone: not claimed yet, in progress, and finished;
-- and the age of the first one not claimed. What the last 100,000 ranges finished is counted. If there are more
-- ranges, it is an estimate: as many messages as there are offsets from the first range on.
-- Indexes: the primary keys, tq_events__s1__lease. Locks: none.
select
    max(0, coalesce((select max(id) from tq_events), 0) - next + 1),
    (
        select coalesce(sum(messages - json_array_length(coalesce(left_ids, '[]'))), 0)
        from tq_events__s1__ranges where lease_until is not null
    ),
    (
        select case
            when count(*) < 100000 then coalesce(sum(finished), 0)
            else max(sum(finished), max(last_offset) - (select first_offset from tq_events__s1__ranges order by id limit 1) + 1)
        end
        from (
            select last_offset, (
                coalesce(json_array_length(left_ids), case when finished_at is not null then messages else 0 end)
                - json_array_length(coalesce(apart_ids, '[]'))
            ) as finished
            from tq_events__s1__ranges where messages > 0 order by id desc limit 100000
        )
    ),
    (select (coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) - pushed_at) / 1e6 from tq_events where id >= next order by id limit 1)
from (
    select max(last_offset + 1, coalesce((select min(id) from tq_events), 0)) as next
    from tq_events__s1__ranges order by id desc limit 1
);

-- range_stats_finished
-- Of the last :n messages that the last :n ranges finished less than :age seconds ago, the last
-- one first: producer, consumer, seconds of wait and of run, attempts, and how many seconds ago each was finished.
-- Messages that left a range have the time of the last ones that did.
-- Index: the primary keys. Locks: none.
with spans as materialized (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, first_offset, last_offset, finished,
        sum(finished) over (order by finished_at desc rows unbounded preceding) as so_far
    from (
        select *, (
            coalesce(json_array_length(left_ids), case when finished_at is not null then messages else 0 end)
            - json_array_length(coalesce(apart_ids, '[]'))
        ) as finished
        from tq_events__s1__ranges
        where id >= (select min(id) from (select id from tq_events__s1__ranges order by id desc limit :n))
    )
    where finished > 0 and finished_at > coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) - cast(:age * 1000000 as integer) and finished_at <= coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
)
select
    producer,
    consumer,
    (popped_at - pushed_at) / 1e6 as wait,
    (finished_at - popped_at) / 1e6 as run,
    1 as attempts,
    (coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) - finished_at) / 1e6 as ago
from spans
join tq_events as log on log.id between first_offset and last_offset
where so_far - finished < :n
    and (left_ids is null or log.id in (select value from json_each(left_ids)))
    and (apart_ids is null or log.id not in (select value from json_each(apart_ids)))
order by finished_at desc
limit :n;

-- range_until_next
-- Seconds until a message can be popped: 0 if one is ready, null if none is to come. For consumers that wait.
-- Indexes: those of the states, tq_events__s1__lease, the primary keys; one entry of each. Locks: none.
select
    case
        when paused.until is not null then (paused.until - coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)) / 1e6
        when exists (select 1 from tq_events__s1 where state = 'ready')
            or (select max(id) from tq_events) > (select last_offset from tq_events__s1__ranges order by id desc limit 1) then 0
        else (min(
            coalesce((select min(due_at) from tq_events__s1 where state = 'scheduled'), 9e18),
            coalesce((select min(lease_until) from tq_events__s1 where state = 'in_progress'), 9e18),
            coalesce((select min(lease_until) from tq_events__s1__ranges where lease_until is not null), 9e18)
        ) - coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)) / 1e6
    end as seconds,
    paused.until is not null as paused
from (select max(until) as until from tq__paused where name = 'tq_events__s1' and until > coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)) as paused;

-- topic_bounds
-- The first offset of the log, and the one after the last.
-- Index: the primary key. Locks: none.
select
    coalesce((select min(id) from tq_events), (select seq + 1 from sqlite_sequence where name = 'tq_events'), 1),
    coalesce((select seq + 1 from sqlite_sequence where name = 'tq_events'), 1);

-- topic_push
-- Push one message to the log.
-- Locks: the database, for the length of the statement. A crash before the commit leaves nothing.
insert into tq_events (pushed_at, producer, group_key, headers, payload)
values (coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), :producer, :group, :headers, :payload)
returning id;

-- topic_push_many
-- Push several messages in their order, some in a statement: (:payload) stands there once for each of them.
-- All statements are in one transaction: all are pushed, or none. The ids are consecutive and end at
-- last_insert_rowid(). Locks: the database. A crash before the commit leaves nothing.
insert into tq_events (pushed_at, producer, group_key, headers, payload)
select coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), :producer, :group, :headers, column1
from (values (:payload));

-- topic_pushed_at
-- When the message at offset :start, or the first one after it, was pushed. Index: the primary key. Locks: none.
select pushed_at from tq_events where id >= :start order by id limit 1;

-- topic_rows
-- The messages at the offsets from :start on and before :end. Index: the primary key. Locks: none.
select id as message_offset, id, payload, headers, group_key, producer, pushed_at
from tq_events
where id >= :start and id < :end
order by id;

-- topic_size
-- What the log has: the number of its messages, their bytes, and the seconds since the first one was pushed. The bytes
-- are an estimate: as if all messages were as long as the last 1,000. Index: the primary key. Locks: none.
select
    messages,
    cast(coalesce(messages * (
        select avg(30 + length(cast(payload as blob)) + coalesce(length(headers), 0))
        from (select payload, headers from tq_events order by id desc limit 1000)
    ), 0) as integer),
    (select (coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) - pushed_at) / 1e6 from tq_events order by id limit 1)
from (select coalesce(max(id) - min(id) + 1, 0) as messages from tq_events);

-- topic_stats_pushed
-- Count the messages pushed less than :age seconds ago by moment, among the :n highest ids of the
-- log. Returns the producer, how many seconds ago, and the number of messages.
-- Index: the primary key, backwards, for :n rows: no index has the time of a push, but ids rise with it. Locks: none.
select producer, (coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) - pushed_at) / 1e6 as ago, count(*) as pushed
from (select producer, pushed_at from tq_events order by id desc limit :n) as newest
where pushed_at > coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) - cast(:age * 1000000 as integer) and pushed_at <= coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
group by producer, pushed_at;

-- topic_trim
-- Delete messages that come before the offset :start: up to 10,000 of them, from the beginning of the log, whose pages
-- new messages fill. Index: the primary key. Locks: the database.
delete from tq_events where id < min(:start, (select min(id) from tq_events) + 10000);
select changes();

