-- create_ranges
-- The ranges that a subscription has claimed, in the order of the claims: its history. The next claim begins after the
-- last one. The first row has no messages: it says where the subscription begins, and so does that of a seek.
-- A range with a lease_until is in progress. Without it, it is finished, or its lease expired and finished_at is null.
-- `left_ids` are the messages that have left it: completed apart from the others; or set apart, and counted by `apart`.
-- Runs in one transaction: a crash leaves nothing.
create table tq_events__s1__ranges (
    id integer primary key,
    first_offset integer not null,
    last_offset integer not null,
    messages integer not null,
    ids_sum integer not null,
    apart integer not null default 0,
    token text,
    consumer text,
    popped_at integer not null,
    lease_until integer,
    finished_at integer,
    left_ids text check (left_ids is null or json_valid(left_ids))
) strict;
create index tq_events__s1__token on tq_events__s1__ranges (token) where lease_until is not null;
create index tq_events__s1__lease on tq_events__s1__ranges (lease_until) where lease_until is not null;
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (:start, :start - 1, 0, 0, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000));

-- create_topic
-- The log of a topic. Its rows are never changed. One transaction writes at a time. So the ids have the order of the
-- commits, and no gaps: the offset of a message is its id.
-- Runs in one transaction: a crash leaves nothing.
create table tq_events (
    id integer primary key autoincrement,
    pushed_at integer not null,
    producer text,
    group_key text,
    headers text check (headers is null or json_valid(headers)),
    payload text not null check (json_valid(payload))
) strict;

-- drop_ranges
-- Drop the ranges of a subscription. In one transaction with its queue: a crash leaves all or nothing.
drop table if exists tq_events__s1__ranges;

-- drop_topic
-- Drop the log of a topic; what was in it is gone.
drop table if exists tq_events;

-- publish_topic
-- Push to a log what the :attempts of the write :write staged, in the order of their parts, all at once.
-- Locks: the database. One transaction with writer_advance: a crash publishes none.
insert into tq_events (pushed_at, producer, group_key, headers, payload)
select coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), :producer, group_key, headers, payload
from tq_events__staged
where write_id = :write and attempt in (select value from json_each(:attempts))
order by part, place;

-- range_claim
-- Claim the next range of up to :n messages under a new lease: one row for all of them.
-- Index: the primary keys. Locks: the database, for the length of the transaction.
-- A consumer that dies leaves its range in progress; sweep sets its messages apart when the lease has expired.
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
where last >= first;
select
    log.id, log.payload, log.headers, 1, log.pushed_at, popped_at, lease_until, 0, log.group_key, null, null
from tq_events__s1__ranges as ranges
join tq_events as log on log.id between first_offset and last_offset
where changes() > 0 and ranges.id = last_insert_rowid()
order by log.id;

-- range_complete
-- Complete the range that is held under :token: all :number messages of it, which have this :sum of ids.
-- Index: tq_events__s1__token. Locks: the database. A crash leaves it in progress until its lease expires.
update tq_events__s1__ranges
set finished_at = coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), lease_until = null
where token = :token and lease_until is not null and messages = :number and ids_sum = :sum and left_ids is null
returning id;

-- range_due
-- Whether a sweep has something to do: for ranges whose lease has expired, for messages apart that are due or
-- abandoned; and whether a message apart is ready. Indexes: tq_events__s1__lease, those of the states; one entry of each.
-- Locks: none.
select
    exists (select 1 from tq_events__s1__ranges where lease_until <= coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)),
    exists (select 1 from tq_events__s1 where state = 'scheduled' and due_at <= coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000))
    or exists (select 1 from tq_events__s1 where state = 'in_progress' and lease_until <= coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)),
    exists (select 1 from tq_events__s1 where state = 'ready');

-- range_expire
-- The messages that have not left range :id, whose lease has expired, become rows of the subscription's queue: ready,
-- or dead letters if one attempt was all they had. The range is not in progress any more.
-- Index: the primary keys. Locks: the database. A crash leaves all or nothing.
delete from tq_events__s1_history
where id in (
    select log.id
    from tq_events__s1__ranges as ranges
    join tq_events as log on log.id between first_offset and last_offset
    where ranges.id = :id and log.id not in (select value from json_each(coalesce(left_ids, '[]')))
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
where ranges.id = :id and log.id not in (select value from json_each(coalesce(left_ids, '[]')))
on conflict (id) do update set
    state = excluded.state, attempts = excluded.attempts, errors = excluded.errors, token = null, lease_until = null;
update tq_events__s1__ranges
set lease_until = null, apart = apart + messages - json_array_length(coalesce(left_ids, '[]'))
where id = :id;

-- range_expired
-- Up to :n ranges whose lease has expired. Index: tq_events__s1__lease. Locks: the database.
select id from tq_events__s1__ranges where lease_until <= coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) order by lease_until limit :n;

-- range_extend
-- Extend the lease on the range under :token that holds the message of :ids: it ends :lease seconds from now.
-- Index: tq_events__s1__token. Locks: the database.
update tq_events__s1__ranges
set lease_until = coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) + cast(:lease * 1000000 as integer)
where token = :token and lease_until is not null and exists (
    select 1 from json_each(:ids) as ids
    where ids.value between first_offset and last_offset
        and ids.value not in (select value from json_each(coalesce(left_ids, '[]')))
)
returning lease_until;

-- range_floor
-- The first offset that a subscription still needs: of a range in progress, or the next one to claim.
-- Indexes: tq_events__s1__lease, the primary key. Locks: none.
select coalesce(
    (select min(first_offset) from tq_events__s1__ranges where lease_until is not null),
    (select last_offset + 1 from tq_events__s1__ranges order by id desc limit 1)
);

-- range_hold
-- The messages of :ids that ranges under :token hold: those that have not left them.
-- Index: tq_events__s1__token. Locks: the database.
select ids.value
from tq_events__s1__ranges as ranges
join json_each(:ids) as ids on ids.value between first_offset and last_offset
where token = :token and lease_until is not null
    and ids.value not in (select value from json_each(coalesce(left_ids, '[]')));

-- range_mark
-- Mark the messages of :ids, which ranges under :token hold, as left. A range is finished when all have left it.
-- Index: tq_events__s1__token. Locks: the database. A crash leaves them in progress until the lease expires.
update tq_events__s1__ranges
set left_ids = (
    select json_group_array(value) from (
        select value from json_each(coalesce(left_ids, '[]'))
        union all
        select value from json_each(:ids) where value between first_offset and last_offset
    )
)
where token = :token and lease_until is not null;
update tq_events__s1__ranges
set finished_at = coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), lease_until = null
where token = :token and lease_until is not null and messages = json_array_length(left_ids);

-- range_note
-- Note as a finished range what a :consumer has read by itself, :age seconds long: all before the offset :start.
-- Nothing is noted while ranges are in progress, which are counted. Indexes: the primary key, tq_events__s1__lease.
-- Locks: the database.
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, consumer, popped_at, finished_at)
select
    last_offset + 1, :start - 1, :start - 1 - last_offset, 0, :consumer, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) - cast(:age * 1000000 as integer), coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
from (select last_offset from tq_events__s1__ranges order by id desc limit 1)
where last_offset + 1 < :start and not exists (select 1 from tq_events__s1__ranges where lease_until is not null);
select count(*) from tq_events__s1__ranges where lease_until is not null;

-- range_position
-- The offset at which the next claim of a subscription begins. Index: the primary key. Locks: none.
select last_offset + 1 from tq_events__s1__ranges order by id desc limit 1;

-- range_pump
-- Move the next :n messages of the log to the queue of an ordered subscription, and the position past them.
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
select log.id, 'ready', log.pushed_at, log.group_key, log.producer, log.headers, log.payload
from tq_events__s1__ranges as ranges
join tq_events as log on log.id between first_offset and last_offset
where ranges.id = (select max(id) from tq_events__s1__ranges) and ranges.token = :token
on conflict (id) do nothing;

-- range_purge
-- Delete the ranges that have no message any more at or after the offset :start, but for the last one, after which the
-- next claim begins. Index: the primary key. Locks: the rows. A crash leaves all or nothing.
delete from tq_events__s1__ranges
where last_offset < :start and lease_until is null and id < (select max(id) from tq_events__s1__ranges);

-- range_seek
-- Let the next claim begin at :start. The row has no messages. Locks: the database.
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (:start, :start - 1, 0, 0, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000));

-- range_set_apart
-- The messages of :ids, which ranges under :token hold, become rows of the subscription's queue: ready after :delay
-- seconds, or dead letters if :attempts is :max_attempts.
-- Index: tq_events__s1__token. Locks: the database. In one transaction with range_mark.
-- A seek may have brought back a message that the queue or its history has already: this is its state now.
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
    state = excluded.state, attempts = excluded.attempts, due_at = excluded.due_at, errors = excluded.errors,
    token = null, lease_until = null;
update tq_events__s1__ranges
set apart = apart + (select count(*) from json_each(:ids) where value between first_offset and last_offset)
where token = :token and lease_until is not null;

-- range_stats
-- The messages of a subscription that are in the log alone: not claimed yet, in progress, and finished; and the age of
-- the first one not claimed. Indexes: the primary keys, tq_events__s1__lease. Locks: none.
select
    max(0, coalesce((select max(id) from tq_events), 0) - next + 1),
    (
        select coalesce(sum(messages - json_array_length(coalesce(left_ids, '[]'))), 0)
        from tq_events__s1__ranges where lease_until is not null
    ),
    (select coalesce(sum(messages - apart), 0) from tq_events__s1__ranges where lease_until is null),
    (select (coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) - pushed_at) / 1e6 from tq_events where id >= next order by id limit 1)
from (
    select max(last_offset + 1, coalesce((select min(id) from tq_events), 0)) as next
    from tq_events__s1__ranges order by id desc limit 1
);

-- range_until_next
-- Seconds until a message can be popped: 0 if one is ready, null if none is to come. For consumers that wait.
-- Indexes: those of the states, tq_events__s1__lease, the primary keys; one entry of each. Locks: none.
select case
    when exists (select 1 from tq_events__s1 where state = 'ready')
        or (select max(id) from tq_events) > (select last_offset from tq_events__s1__ranges order by id desc limit 1) then 0
    else (min(
        coalesce((select min(due_at) from tq_events__s1 where state = 'scheduled'), 9e18),
        coalesce((select min(lease_until) from tq_events__s1 where state = 'in_progress'), 9e18),
        coalesce((select min(lease_until) from tq_events__s1__ranges where lease_until is not null), 9e18)
    ) - coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)) / 1e6
end as seconds;

-- topic_bounds
-- The first offset of the log, and the one after the last. Index: the primary key. Locks: none.
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

-- topic_trim
-- Delete messages that come before the offset :start: up to 10,000 of them, from the beginning of the log, whose pages
-- new messages fill. Index: the primary key. Locks: the database.
delete from tq_events where id < min(:start, (select min(id) from tq_events) + 10000);
select changes();

