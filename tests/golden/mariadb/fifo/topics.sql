-- create_ranges
-- The ranges that a subscription has claimed, in the order of the claims: its history. The next claim
-- begins after the last one. The first row has no messages: it says where the subscription begins, and so does that
-- of a seek.
-- A range with a lease_until is in progress. `left_ids` are the messages that have left it, the last at finished_at:
-- completed before the others; or detached, and in `apart_ids`, too. A range that is finished has no left_ids.
-- When its lease expires, the messages that have not left it are detached, without being in `apart_ids`.
-- `pieces` are the ids of its messages in the order of the offsets, as JSON: [[first, last], ...].
-- The id is that of the last range plus one. Of two claims at once, one gets a duplicate key and begins again.
-- Under the creators' lock. A crash before the end leaves tables that are not in the catalogue: see create.
create table tq_events__s1__ranges (
    id bigint not null primary key,
    first_offset bigint not null,
    last_offset bigint not null,
    messages int not null,
    ids_sum bigint not null,
    pieces longtext not null,
    token char(32) character set ascii collate ascii_bin,
    consumer varchar(255),
    popped_at datetime(6) not null,
    lease_until datetime(6),
    finished_at datetime(6),
    left_ids longtext,
    apart_ids longtext,
    unique key tq_events__s1__token (token),
    key tq_events__s1__lease (lease_until)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: ranges of tq_events__s1';
insert into tq_events__s1__ranges (id, first_offset, last_offset, messages, ids_sum, pieces, popped_at, finished_at)
values (1, :start, :start - 1, 0, 0, '[]', coalesce(cast(:now as datetime(6)), utc_timestamp(6)), coalesce(cast(:now as datetime(6)), utc_timestamp(6)));

-- create_topic
-- The log of a topic. Its rows are never changed.
-- Ids are given before commits. So the offset of a message, which says when it became visible, is in the runs: a run is
-- ids without a gap that were all visible when a session looked, and an offset is first_offset + id - first_id. The run
-- with the lowest offset is the last message that was dropped; at first 0, which never was.
-- The holes are the ids between runs: they were rolled back, or will be committed. seen_at is the time of the first
-- look. The row of the id 0 is no hole: who gives offsets has locked it.
-- A hole that no transaction will fill is closed by rows without pushed_at, which are no messages; see close_holes.
-- Under the creators' lock. A crash before the end leaves tables that are not in the catalogue: see create.
create table tq_events (
    id bigint not null auto_increment primary key,
    pushed_at datetime(6),
    producer varchar(255),
    group_key varbinary(1020),
    headers longtext,
    payload longtext not null check (json_valid(payload))
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: log of tq_events';
create table tq_events__runs (
    first_offset bigint not null primary key,
    first_id bigint not null,
    last_id bigint not null,
    key tq_events__last_id (last_id)
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: runs of tq_events';
insert into tq_events__runs (first_offset, first_id, last_id) values (0, 0, 0);
create table tq_events__holes (
    first_id bigint not null primary key,
    last_id bigint not null,
    seen_at datetime(6) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: holes of tq_events';
insert into tq_events__holes (first_id, last_id, seen_at) values (0, -1, utc_timestamp(6));

-- create_topic_groups
-- The log of a topic with groups refuses a message without one, from whomever: an ordered
-- subscription needs it.
-- A row that closes a hole is no message; see close_holes. DELIMITER is for the client programs: there are semicolons
-- inside the trigger.
-- A crash before the end leaves tables that are not in the catalogue: see create.
delimiter //
create trigger tq_events__grouped before insert on tq_events for each row
    if new.group_key is null and new.pushed_at is not null then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'The topic has groups, and none is given. Give the message its group.';
    end if //
delimiter ;

-- drop_ranges
-- Drop the ranges of a subscription.
-- It waits for transactions that use the table. In one transaction with its queue: a crash leaves all or nothing. On
-- MariaDB and MySQL, the catalogue forgot the subscription before: a crash leaves a table that the next create of this
-- name drops.
drop table if exists tq_events__s1__ranges;

-- drop_topic
-- Drop the log of a topic, with its messages.
-- It waits for transactions that use the tables. The catalogue forgot the topic before: a crash leaves tables that the
-- next create of this name drops.
drop table if exists tq_events__holes;
drop table if exists tq_events__runs;
drop table if exists tq_events;

-- publish_topic
-- Push to a log what the :attempts of the write :write staged, in the order of their parts, all at once.
-- Index: the primary key. Locks: none that another transaction waits for.
-- One transaction with writer_advance: a crash publishes none.
insert into tq_events (payload, headers, producer, group_key, pushed_at)
select payload, headers, :producer, group_key, coalesce(cast(:now as datetime(6)), utc_timestamp(6))
from tq_events__staged
where write_id = :write and attempt in :attempts
order by part, place;

-- range_absorb
-- Delete the detached messages that a seek decides about: those that no consumer has had, at any offset,
-- because they are in the log; and those with an offset from :start on that the log still has, because they come
-- again. With :force, the latter even if they are in progress: their leases end.
-- A message before :start that some consumer has had stays, and so does one that the log does not have any more. Found,
-- locked by their ids, deleted, as in purge. Those that are locked are asked again: a consumer may have had one since
-- it was found. Indexes: the primary keys, runs by last_id; all detached messages are read.
-- Locks: the rows; locked rows are skipped, and range_remaining finds them. In one transaction with range_seek.
select id
from tq_events__s1 as message force index (primary)
where (:force or state <> 'in_progress') and (first_popped_at is null or exists (
        select 1
        from tq_events__runs as run
        where run.last_id = (select min(last_id) from tq_events__runs where last_id >= message.id)
            and first_id <= message.id and first_offset + message.id - first_id >= :start
            and first_offset > (select min(first_offset) from tq_events__runs)
    ));
select message.id
from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_events__s1 as message force index (primary) on message.id = given.id
where (:force or state <> 'in_progress') and (first_popped_at is null or exists (
        select 1
        from tq_events__runs as run
        where run.last_id = (select min(last_id) from tq_events__runs where last_id >= message.id)
            and first_id <= message.id and first_offset + message.id - first_id >= :start
            and first_offset > (select min(first_offset) from tq_events__runs)
    ))
for update skip locked;
delete tq_events__s1 from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_events__s1 force index (primary) on tq_events__s1.id = given.id;

-- range_claim
-- Claim the next range of up to :n messages under a new lease: one row for all of them. Nothing if there are fewer than
-- :least. Three round trips in autocommit: the runs; the new row and a look at it; and the messages, without a lock.
-- The first statement finds runs from :start on, which is a guess of the position, and the first offset of the log. The
-- runs come back as :runs, and :end is their last offset. No run ever gives an offset another id, so it does not matter
-- how old they are. If they do not have all of the range, nothing is claimed.
-- The id of a range is that of the last one plus one. If another session has claimed it meanwhile, that is a duplicate
-- key, and the insert is repeated. It reads without locks, at READ COMMITTED.
-- Each piece of ids of the range repeats the condition of the last statement.
-- Indexes: the primary keys. Locks: the new row.
-- A consumer that dies leaves its range in progress; sweep detaches its messages when the lease has expired.
(
    select first_offset, first_id, last_id, (select min(first_offset) + 1 from tq_events__runs)
    from tq_events__runs where first_offset <= :start order by first_offset desc limit 1
)
union all
(
    select first_offset, first_id, last_id, (select min(first_offset) + 1 from tq_events__runs)
    from tq_events__runs where first_offset > :start order by first_offset limit :look
);
insert into tq_events__s1__ranges (
    id, first_offset, last_offset, messages, ids_sum, pieces, token, consumer, popped_at, lease_until
)
select
    last_insert_id(id + 1), begins, ends, ends - begins + 1, sum((low + high) * (high - low + 1) div 2),
    concat('[', group_concat('[', low, ',', high, ']' order by first_offset), ']'),
    :token, :consumer, coalesce(cast(:now as datetime(6)), utc_timestamp(6)), coalesce(cast(:now as datetime(6)), utc_timestamp(6)) + interval :lease second
from (
    select
        id, begins, ends, first_offset, run.low + greatest(begins - first_offset, 0) as low,
        least(run.high, run.low + ends - first_offset) as high
    from (
        select
            id, greatest(last_offset + 1, :first_offset) as begins,
            least(greatest(last_offset + 1, :first_offset) + :n - 1, :end) as ends
        from tq_events__s1__ranges order by id desc limit 1
    ) as last
    straight_join json_table(:runs, '$[*]' columns (first_offset bigint path '$[0]', low bigint path '$[1]', high bigint path '$[2]')) as run
) as piece
where low <= high and ends - begins + 1 >= :least and not exists (select 1 from tq__paused where name = 'tq_events__s1' and until > coalesce(cast(:now as datetime(6)), utc_timestamp(6)))
group by id, begins, ends
having sum(high - low + 1) = ends - begins + 1;
select pieces, last_offset, cast(popped_at as char), cast(lease_until as char)
from tq_events__s1__ranges
where id = last_insert_id() and token = :token;
select
    id, payload, headers, 1, cast(pushed_at as char), :popped_at, :lease_until, 0,
    convert(group_key using utf8mb4) as group_key, null, null, null
from tq_events force index (primary)
where id between :low and :high;

-- range_complete
-- Complete the range that is held under :token: all :number messages of it, which have this :sum of
-- ids.
-- The second statement is for a caller's transaction, which finds the :id first (range_id). By the token, it would lock
-- the gap between two tokens under REPEATABLE READ, where the token of the next claim may belong.
-- Indexes: tq_events__s1__token, the primary key. Locks: the row. A crash leaves it in progress until its lease expires.
update tq_events__s1__ranges force index (tq_events__s1__token)
set finished_at = coalesce(cast(:now as datetime(6)), utc_timestamp(6)), lease_until = null
where token = :token and lease_until is not null and messages = :number and ids_sum = :sum and left_ids is null;
update tq_events__s1__ranges force index (primary)
set finished_at = coalesce(cast(:now as datetime(6)), utc_timestamp(6)), lease_until = null
where id = :id and token = :token and lease_until is not null
    and messages = :number and ids_sum = :sum and left_ids is null;

-- range_detach
-- The messages of :ids, which range :id holds, become rows of the subscription's queue: ready after :delay seconds, or
-- dead letters if :attempts is :max_attempts.
-- A seek leaves no message both detached and in the log. Older versions did: then this is its state, unless a consumer
-- holds it detached.
-- The first statement is for a caller's transaction: at REPEATABLE READ, to delete what is not there locks gaps.
-- Indexes: the primary keys. Locks: the rows. In one transaction with range_mark or range_expire.
select message.id from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_events__s1_history as message force index (primary) on message.id = given.id;
delete tq_events__s1_history
from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_events__s1_history force index (primary) on tq_events__s1_history.id = given.id;
insert into tq_events__s1 (
    id, state, attempts, pushed_at, due_at, first_popped_at, popped_at, group_key, producer, consumer, headers, errors,
    payload
)
select
    log.id,
    case when :attempts >= :max_attempts then 'dead' when :delay > 0 then 'scheduled' else 'ready' end,
    :attempts, log.pushed_at,
    case when :attempts < :max_attempts and :delay > 0 then coalesce(cast(:now as datetime(6)), utc_timestamp(6)) + interval :delay second end,
    held.popped_at, held.popped_at, log.group_key, log.producer, held.consumer, log.headers,
    case
        when :error is not null then json_array(json_object(
            'attempt', :attempts, 'at', cast(coalesce(cast(:now as datetime(6)), utc_timestamp(6)) as char), 'consumer', held.consumer, 'error', :error
        ))
    end,
    log.payload
from tq_events__s1__ranges as held
straight_join json_table(:ids, '$[*]' columns (id bigint path '$')) as given
straight_join tq_events as log force index (primary) on log.id = given.id
where held.id = :id
on duplicate key update
    attempts = if(tq_events__s1.state = 'in_progress', tq_events__s1.attempts, values(attempts)),
    due_at = if(tq_events__s1.state = 'in_progress', tq_events__s1.due_at, values(due_at)),
    errors = if(tq_events__s1.state = 'in_progress', tq_events__s1.errors, values(errors)),
    state = if(tq_events__s1.state = 'in_progress', tq_events__s1.state, values(state));

-- range_due
-- Whether a sweep has something to do: for ranges whose lease has expired, for detached messages that are
-- due or abandoned; and whether a detached message is ready.
-- Indexes: tq_events__s1__lease, tq_events__s1__state; one entry of each. Locks: none.
select
    exists (select 1 from tq_events__s1__ranges force index (tq_events__s1__lease) where lease_until <= coalesce(cast(:now as datetime(6)), utc_timestamp(6))),
    exists (select 1 from tq_events__s1 force index (tq_events__s1__state) where state = 'scheduled' and sweep_at <= coalesce(cast(:now as datetime(6)), utc_timestamp(6)))
    or exists (select 1 from tq_events__s1 force index (tq_events__s1__state) where state = 'in_progress' and sweep_at <= coalesce(cast(:now as datetime(6)), utc_timestamp(6))),
    exists (select 1 from tq_events__s1 force index (tq_events__s1__state) where state = 'ready');

-- range_end_leases
-- End the leases of the ranges that have messages with an offset from :start on, for a seek that is
-- forced. Their messages are then detached as if it had expired.
-- Index: tq_events__s1__lease. Locks: the rows; locked rows are skipped. In one transaction with range_seek.
select id
from tq_events__s1__ranges force index (tq_events__s1__lease)
where lease_until > coalesce(cast(:now as datetime(6)), utc_timestamp(6)) and last_offset >= :start
for update skip locked;
update json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_events__s1__ranges force index (primary) on tq_events__s1__ranges.id = given.id
set lease_until = coalesce(cast(:now as datetime(6)), utc_timestamp(6));

-- range_expire
-- Range :id, whose lease has expired, is not in progress any more. The messages that had not left it are detached.
-- Index: the primary key. Locks: the row. In one transaction with range_detach.
update tq_events__s1__ranges set lease_until = null where id = :id;

-- range_expired
-- Up to :n ranges whose lease has expired, with their ids, and those of the messages that have left them.
-- The second statement locks range :id if that is so still, for a packet that detaches its messages.
-- Index: tq_events__s1__lease, the primary key. Locks: the rows; locked rows are skipped.
select id, pieces, left_ids
from tq_events__s1__ranges force index (tq_events__s1__lease)
where lease_until <= coalesce(cast(:now as datetime(6)), utc_timestamp(6))
order by lease_until
limit :n
for update skip locked;
select id
from tq_events__s1__ranges force index (primary)
where id = :id and lease_until <= coalesce(cast(:now as datetime(6)), utc_timestamp(6)) and left_ids <=> :left_ids
for update skip locked;

-- range_extend
-- Extend the lease on range :id: it ends :lease seconds from now. In one transaction with range_hold.
-- Index: the primary key. Locks: the row.
update tq_events__s1__ranges set lease_until = coalesce(cast(:now as datetime(6)), utc_timestamp(6)) + interval :lease second where id = :id;
select lease_until from tq_events__s1__ranges where id = :id;

-- range_find
-- Message :id, if it is in the log, and it is ready or a range in progress holds it. After a seek the last
-- range counts.
-- Indexes: the primary keys, that of the runs by last_id; all ranges are read. Locks: none.
select
    log.id, log.payload, log.headers, case when held.id is null then 'ready' else 'in_progress' end as state,
    case when held.id is null then 0 else 1 end as attempts, 0 as priority,
    convert(group_key using utf8mb4) as group_key, null as dedup_key, log.producer, consumer, log.pushed_at,
    cast(null as datetime(6)) as due_at, popped_at as first_popped_at, popped_at, lease_until,
    cast(null as datetime(6)) as finished_at, null as errors
from tq_events as log
cross join (
    select
        (
            select first_offset + :id - first_id from tq_events__runs
            where first_id <= :id and last_id >= :id order by last_id limit 1
        ) as message_offset,
        greatest(
            (select last_offset + 1 from tq_events__s1__ranges order by id desc limit 1),
            (select first_offset + 1 from tq_events__runs order by first_offset limit 1)
        ) as position
) as place
left join tq_events__s1__ranges as held on held.id = (
    select max(id) from tq_events__s1__ranges
    where place.message_offset between first_offset and last_offset and place.message_offset < place.position
)
where log.id = :id and log.pushed_at is not null and (
    message_offset is null or message_offset >= position
    or (lease_until is not null and (left_ids is null or not json_contains(left_ids, cast(log.id as char))))
);

-- range_finished
-- The last :n messages with ids from :low to :high finished from :since on and before :until, highest
-- id first: those that ranges finished (with :final only those that are not in progress any more), if the log still
-- has them, and those of the history of the subscription. Messages that left a range have the time of the last ones
-- that did. If a message was finished again after a seek, its last pop counts.
-- Of the intervals of ids only the first ones are read, which have so many finished messages, whatever was read again.
-- Indexes: the primary keys; all ranges are read. Locks: none.
with spans as (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, messages - finished as others,
        greatest(low, :low) as low, least(high, :high) as high
    from (
        select
            claimed.id as range_id, messages, consumer, popped_at, lease_until, finished_at, left_ids, apart_ids,
            (
                coalesce(json_length(left_ids), case when finished_at is not null then messages else 0 end)
                - coalesce(json_length(apart_ids), 0)
            ) as finished, interval_of.low, interval_of.high
        from tq_events__s1__ranges as claimed
        straight_join json_table(
            claimed.pieces, '$[*]' columns (low bigint path '$[0]', high bigint path '$[1]')
        ) as interval_of
    ) as piece
    where finished > 0 and (lease_until is null or not :final)
        and finished_at >= :since and finished_at < :until and low <= :high and high >= :low
), counted as (
    select low, sure, sum(sure) over (order by low desc rows unbounded preceding) as so_far
    from (select low, greatest(high - low + 1 - others, 0) as sure from spans) as each_one
), reach as (
    select min(low) as low
    from counted
    where so_far - sure < :n * (1 + (select count(*) from tq_events__s1__ranges where messages = 0))
)
select
    id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, popped_at, lease_until, finished_at, errors
from (
    select
        id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
        first_popped_at, popped_at, lease_until, finished_at, errors,
        row_number() over (partition by id order by popped_at desc) as place
    from (
        select
            id, payload, headers, 'finished' as state, 1 as attempts, 0 as priority,
            convert(group_key using utf8mb4) as group_key, null as dedup_key, producer, consumer, pushed_at,
            cast(null as datetime(6)) as due_at, popped_at as first_popped_at, popped_at,
            cast(null as datetime(6)) as lease_until, finished_at, null as errors
        from spans
        straight_join tq_events as log force index (primary) on log.id between spans.low and spans.high
        where spans.high >= (select low from reach)
            and (left_ids is null or json_contains(left_ids, cast(log.id as char)))
            and (apart_ids is null or not json_contains(apart_ids, cast(log.id as char)))
        union all
        (
            select
                id, payload, headers,
                coalesce(outcome, case when finished_at is null then 'in_progress' else 'finished' end) as state,
                attempts, priority, convert(group_key using utf8mb4) as group_key,
                convert(dedup_key using utf8mb4) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at,
                popped_at, cast(null as datetime(6)) as lease_until, finished_at, errors
            from tq_events__s1_history
            where id between :low and :high and finished_at >= :since and finished_at < :until
            order by id desc
            limit :n
        )
    ) as each_one
) as finished
where place = 1
order by id desc
limit :n;

-- range_finished_bounds
-- The lowest and the highest id of the ranges that finished messages from :since on and before
-- :until, and of the messages of the subscription's history that were: no other id has such a message.
-- For `+ 0` see finished_bounds.
-- Indexes: the primary keys, tq_events__s1__finished; all ranges are read. Locks: none.
select min(low), max(high)
from (
    select low, high
    from (
        select
            claimed.id as range_id, messages, consumer, popped_at, lease_until, finished_at, left_ids, apart_ids,
            (
                coalesce(json_length(left_ids), case when finished_at is not null then messages else 0 end)
                - coalesce(json_length(apart_ids), 0)
            ) as finished, interval_of.low, interval_of.high
        from tq_events__s1__ranges as claimed
        straight_join json_table(
            claimed.pieces, '$[*]' columns (low bigint path '$[0]', high bigint path '$[1]')
        ) as interval_of
    ) as piece
    where finished > 0 and finished_at >= :since and finished_at < :until
    union all
    select min(id + 0), max(id + 0) from tq_events__s1_history where finished_at >= :since and finished_at < :until
) as bounds;

-- range_floor
-- What a subscription still needs: the first offset of its ranges in progress, null if there is none; and
-- the one at which its next claim begins.
-- Indexes: tq_events__s1__lease, the primary key. Locks: none.
select
    (select min(first_offset) from tq_events__s1__ranges force index (tq_events__s1__lease) where lease_until is not null),
    last_offset + 1
from tq_events__s1__ranges order by id desc limit 1;

-- range_hold
-- Lock the range under :token, if it is in progress. Return it: its ids, and those of the messages that have left it
-- and that were detached.
-- The second statement is for a caller's transaction; see range_complete.
-- Indexes: tq_events__s1__token, the primary key. Locks: the row.
select id, pieces, left_ids, apart_ids
from tq_events__s1__ranges force index (tq_events__s1__token)
where token = :token and lease_until is not null
for update;
select id, pieces, left_ids, apart_ids
from tq_events__s1__ranges force index (primary)
where id = :id and token = :token and lease_until is not null
for update;

-- range_id
-- The range that was claimed under :token. No row, if the snapshot of the transaction is older than the claim.
-- Index: tq_events__s1__token. Locks: none.
select id from tq_events__s1__ranges force index (tq_events__s1__token) where token = :token;

-- range_last
-- The last range of a subscription, and the offset at which its next claim begins. Index: the primary key. Locks: none.
select id, last_offset + 1 from tq_events__s1__ranges order by id desc limit 1;

-- range_live
-- The last :n messages with ids from :low to :high that are live, in any state, highest id first: the detached ones,
-- those that ranges in progress hold, and those that no range has, which are :ids (see range_ready). A detached
-- message comes once.
-- Indexes: the primary keys, tq_events__s1__lease, that of the runs by last_id. Locks: none.
with ready as (
    select log.* from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_events as log force index (primary) on log.id = given.id
)
select
    id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, popped_at, lease_until, finished_at, errors
from (
    select
        id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
        first_popped_at, popped_at, lease_until, finished_at, errors,
        row_number() over (partition by id order by attempts desc) as place
    from (
        (
            select
                id, payload, headers, state, attempts, priority, convert(group_key using utf8mb4) as group_key,
                convert(dedup_key using utf8mb4) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at,
                popped_at, lease_until, cast(null as datetime(6)) as finished_at, errors
            from tq_events__s1
            where id between :low and :high
            order by id desc
            limit :n
        )
        union all
        select
            id, payload, headers, 'in_progress' as state, 1 as attempts, 0 as priority,
            convert(group_key using utf8mb4) as group_key, null as dedup_key, producer, consumer, pushed_at,
            cast(null as datetime(6)) as due_at, popped_at as first_popped_at, popped_at, lease_until,
            cast(null as datetime(6)) as finished_at, null as errors
        from (
            select
                claimed.id as range_id, messages, consumer, popped_at, lease_until, finished_at, left_ids, apart_ids,
                (
                    coalesce(json_length(left_ids), case when finished_at is not null then messages else 0 end)
                    - coalesce(json_length(apart_ids), 0)
                ) as finished, interval_of.low, interval_of.high
            from tq_events__s1__ranges as claimed
            straight_join json_table(
                claimed.pieces, '$[*]' columns (low bigint path '$[0]', high bigint path '$[1]')
            ) as interval_of
        ) as piece
        straight_join tq_events as log force index (primary) on log.id between piece.low and piece.high
        where lease_until is not null and log.id between :low and :high
            and (left_ids is null or not json_contains(left_ids, cast(log.id as char)))
        union all
        select
            id, payload, headers, 'ready' as state, 0 as attempts, 0 as priority,
            convert(group_key using utf8mb4) as group_key, null as dedup_key, producer, null as consumer, pushed_at,
            cast(null as datetime(6)) as due_at, cast(null as datetime(6)) as first_popped_at,
            cast(null as datetime(6)) as popped_at, cast(null as datetime(6)) as lease_until,
            cast(null as datetime(6)) as finished_at, null as errors
        from ready
    ) as each_one
) as live
where place = 1
order by id desc
limit :n;

-- range_live_bounds
-- The lowest and the highest id of the live messages of a subscription, and of ranges in progress.
-- Indexes: the primary keys, tq_events__s1__lease, that of the runs by last_id. Locks: none.
select min(low), max(high)
from (
    select min(id) as low, max(id) as high from tq_events__s1
    union all
    select low, high from (
        select
            claimed.id as range_id, messages, consumer, popped_at, lease_until, finished_at, left_ids, apart_ids,
            (
                coalesce(json_length(left_ids), case when finished_at is not null then messages else 0 end)
                - coalesce(json_length(apart_ids), 0)
            ) as finished, interval_of.low, interval_of.high
        from tq_events__s1__ranges as claimed
        straight_join json_table(
            claimed.pieces, '$[*]' columns (low bigint path '$[0]', high bigint path '$[1]')
        ) as interval_of
    ) as piece where lease_until is not null
    union all
    select low, high from (
        select first_id + greatest(position - first_offset, 0) as low, last_id as high
        from tq_events__runs
        cross join (
            select greatest(
                (select last_offset + 1 from tq_events__s1__ranges order by id desc limit 1),
                (select first_offset + 1 from tq_events__runs order by first_offset limit 1)
            ) as position
        ) as next
        where first_offset + last_id - first_id >= position
    ) as unclaimed
    union all
    select min(id), max(id) from tq_events where id > (select last_id from tq_events__runs order by last_id desc limit 1)
    union all
    select min(log.id), max(log.id)
    from tq_events__holes as hole
    straight_join tq_events as log force index (primary) on log.id between hole.first_id and hole.last_id
    where pushed_at is not null
) as bounds;

-- range_mark
-- Mark messages of range :id as left: :left_ids are all :number of them that have left it, :apart_ids those of them
-- that were detached. The range is finished when all have left it.
-- Index: the primary key. Locks: the row. A crash leaves them in progress until the lease expires.
update tq_events__s1__ranges
set left_ids = case when messages > :number then :left_ids end,
    apart_ids = :apart_ids,
    finished_at = coalesce(cast(:now as datetime(6)), utc_timestamp(6)),
    lease_until = case when messages > :number then lease_until end
where id = :id;

-- range_note
-- Note as a finished range what a :consumer has read by itself, :age seconds long: all before the offset
-- :start. Nothing is noted while ranges are in progress, which are counted.
-- This changes the row that range_wait has added. It gets the consumer also if nothing new was read: a range without a
-- consumer is a seek. Indexes: tq_events__s1__lease, the primary keys.
-- Locks: the row.
update tq_events__s1__ranges as noted
join (
    select count(*) as ranges from tq_events__s1__ranges force index (tq_events__s1__lease) where lease_until is not null
) as open on open.ranges = 0
set messages = greatest(:start - noted.first_offset, 0),
    last_offset = greatest(:start, noted.first_offset) - 1,
    consumer = :consumer,
    popped_at = coalesce(cast(:now as datetime(6)), utc_timestamp(6)) - interval :age second,
    finished_at = coalesce(cast(:now as datetime(6)), utc_timestamp(6)),
    pieces = coalesce((
        select concat('[', group_concat(
            '[', first_id + greatest(noted.first_offset - run.first_offset, 0), ',',
            least(last_id, first_id + :start - 1 - run.first_offset), ']' order by run.first_offset
        ), ']')
        from tq_events__runs as run
        where run.first_offset < :start and run.first_offset + last_id - first_id >= noted.first_offset
            and noted.first_offset < :start
    ), '[]')
where noted.id = last_insert_id();
select count(*) from tq_events__s1__ranges force index (tq_events__s1__lease) where lease_until is not null;

-- range_peek_in_progress
-- The first :n messages of the log with an id above :after that ranges in progress hold.
-- Indexes: tq_events__s1__lease, the primary key. Locks: none.
select
    id, payload, headers, 'in_progress' as state, 1 as attempts, 0 as priority,
    convert(group_key using utf8mb4) as group_key, null as dedup_key, producer, consumer, pushed_at,
    cast(null as datetime(6)) as due_at, popped_at as first_popped_at, popped_at, lease_until,
    cast(null as datetime(6)) as finished_at, null as errors
from (
    select
        claimed.id as range_id, messages, consumer, popped_at, lease_until, finished_at, left_ids, apart_ids,
        (
            coalesce(json_length(left_ids), case when finished_at is not null then messages else 0 end)
            - coalesce(json_length(apart_ids), 0)
        ) as finished, interval_of.low, interval_of.high
    from tq_events__s1__ranges as claimed
    straight_join json_table(
        claimed.pieces, '$[*]' columns (low bigint path '$[0]', high bigint path '$[1]')
    ) as interval_of
) as piece
straight_join tq_events as log force index (primary) on log.id between piece.low and piece.high
where lease_until is not null and log.id > :after
    and (left_ids is null or not json_contains(left_ids, cast(log.id as char)))
order by id
limit :n;

-- range_peek_ready
-- The messages of :ids, which no range has: the first ones above :after; see range_ready.
-- Index: the primary key. Locks: none.
select
    log.id, log.payload, log.headers, 'ready' as state, 0 as attempts, 0 as priority,
    convert(group_key using utf8mb4) as group_key, null as dedup_key, log.producer, null as consumer, log.pushed_at,
    cast(null as datetime(6)) as due_at, cast(null as datetime(6)) as first_popped_at,
    cast(null as datetime(6)) as popped_at, cast(null as datetime(6)) as lease_until,
    cast(null as datetime(6)) as finished_at, null as errors
from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_events as log force index (primary) on log.id = given.id
order by log.id;

-- range_position
-- The offset at which the next claim of a subscription begins; and of the last range or seek, its
-- number and its consumer, null of a seek.
-- Index: the primary key. Locks: none.
select last_offset + 1, id, consumer from tq_events__s1__ranges order by id desc limit 1;

-- range_pump
-- Move the next messages of the log to the queue of an ordered subscription, and the position past them.
-- The position is found by range_last, the runs by a statement of range_claim. The part computes :pieces and :ids, the
-- messages from the offset :start to :end. The statements are one transaction and one round trip. The :id of the new
-- range is that of the last one plus one. If another session has added one meanwhile, that is a duplicate key, and
-- nothing is moved.
-- A message without a group, which an older log may have, is in the group without a name.
-- Indexes: the primary keys. Locks: the rows, for as long as the server needs. A crash leaves all or nothing.
insert into tq_events__s1__ranges (id, first_offset, last_offset, messages, ids_sum, pieces, popped_at, finished_at)
values (:id, :start, :end, 0, 0, :pieces, coalesce(cast(:now as datetime(6)), utc_timestamp(6)), coalesce(cast(:now as datetime(6)), utc_timestamp(6)));
delete tq_events__s1_history from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_events__s1_history force index (primary) on tq_events__s1_history.id = given.id;
insert into tq_events__s1 (id, state, pushed_at, group_key, producer, headers, payload)
select log.id, 'ready', log.pushed_at, coalesce(log.group_key, ''), log.producer, log.headers, log.payload
from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_events as log force index (primary) on log.id = given.id
on duplicate key update id = tq_events__s1.id;

-- range_purge
-- Delete the ranges that have no message any more at or after the offset :start, but for the first one, whose lock is
-- that of range_pump, and the last one, after which the next claim begins.
-- Index: the primary key. Locks: the rows. A crash leaves all or nothing.
delete tq_events__s1__ranges
from (select max(id) as id from tq_events__s1__ranges) as last
straight_join tq_events__s1__ranges on tq_events__s1__ranges.id > 1 and tq_events__s1__ranges.id < last.id
where tq_events__s1__ranges.last_offset < :start and tq_events__s1__ranges.lease_until is null;

-- range_ready
-- The ids of messages of the log that no range of a subscription has: with an offset from the position :start on, in a
-- hole, or above the last id that has an offset. The first statement finds the position and that id, the second one the
-- runs, the third one the holes. The part computes the intervals of ids. Each of them repeats the condition of the last
-- two statements, one of which begins at the lowest id, and one at the highest.
-- Indexes: the primary keys, that of the runs by last_id. Locks: none.
select
    greatest(
        (select last_offset + 1 from tq_events__s1__ranges order by id desc limit 1),
        (select first_offset + 1 from tq_events__runs order by first_offset limit 1)
    ),
    (select max(last_id) from tq_events__runs);
(
    select first_offset, first_id, last_id
    from tq_events__runs where first_offset <= :start order by first_offset desc limit 1
)
union all
(
    select first_offset, first_id, last_id
    from tq_events__runs where first_offset > :start
);
select first_id, last_id from tq_events__holes where first_id > 0;
select id
from tq_events force index (primary)
where (id between :low and :high) and pushed_at is not null
order by id
limit :n;
select id
from tq_events force index (primary)
where (id between :low and :high) and pushed_at is not null
order by id desc
limit :n;

-- range_remaining
-- How many ranges and detached messages a seek to :start has left where none may be: others have
-- locked them, or they are in progress.
-- Indexes: tq_events__s1__lease, the primary keys, that of the runs by last_id; all detached messages are read. Locks: none.
select count(*) from tq_events__s1__ranges force index (tq_events__s1__lease) where lease_until is not null and last_offset >= :start;
select count(*)
from tq_events__s1 as message force index (primary)
where first_popped_at is null or exists (
        select 1
        from tq_events__runs as run
        where run.last_id = (select min(last_id) from tq_events__runs where last_id >= message.id)
            and first_id <= message.id and first_offset + message.id - first_id >= :start
            and first_offset > (select min(first_offset) from tq_events__runs)
    );

-- range_seek
-- Let the next claim begin at :start.
-- This changes the row that range_wait has added. Locks: the row.
update tq_events__s1__ranges
set first_offset = :start, last_offset = :start - 1, popped_at = coalesce(cast(:now as datetime(6)), utc_timestamp(6)), finished_at = coalesce(cast(:now as datetime(6)), utc_timestamp(6))
where id = last_insert_id();

-- range_stats
-- The messages of a subscription that are in the log alone: not claimed yet, in progress, and finished;
-- and the age of the first one not claimed. What the last 100,000 ranges finished is counted. If there are more
-- ranges, it is an estimate: as many messages as there are offsets from the first range on.
-- The first statement finds the position :start, the :end of the offsets, and the :last_id that has one.
-- Indexes: the primary keys, tq_events__s1__lease, that of the runs by last_id. Locks: none.
select
    greatest(
        (select last_offset + 1 from tq_events__s1__ranges order by id desc limit 1),
        (select first_offset + 1 from tq_events__runs order by first_offset limit 1)
    ),
    (select first_offset + last_id - first_id + 1 from tq_events__runs order by first_offset desc limit 1),
    (select max(last_id) from tq_events__runs);
select
    greatest(:end - :start, 0) + (select count(*) from tq_events force index (primary) where id > :last_id),
    (
        select cast(coalesce(sum(messages - coalesce(json_length(left_ids), 0)), 0) as signed)
        from tq_events__s1__ranges force index (tq_events__s1__lease) where lease_until is not null
    ),
    (
        select cast(case
            when count(*) < 100000 then coalesce(sum(finished), 0)
            else greatest(sum(finished), max(last_offset) - (select first_offset from tq_events__s1__ranges order by id limit 1) + 1)
        end as signed)
        from (
            select last_offset, (
                coalesce(json_length(left_ids), case when finished_at is not null then messages else 0 end)
                - coalesce(json_length(apart_ids), 0)
            ) as finished
            from tq_events__s1__ranges where messages > 0 order by id desc limit 100000
        ) as claimed
    ),
    (
        select timestampdiff(microsecond, pushed_at, coalesce(cast(:now as datetime(6)), utc_timestamp(6))) / 1e6
        from tq_events
        where id = case
            when :start < :end then (
                select first_id + :start - first_offset from tq_events__runs
                where first_offset <= :start order by first_offset desc limit 1
            )
            else (select min(id) from tq_events where id > :last_id)
        end
    );

-- range_stats_finished
-- Of the last :n messages that the last :n ranges finished less than :age seconds ago, the last
-- one first: producer, consumer, seconds of wait and of run, attempts, and how many seconds ago each was finished.
-- Messages that left a range have the time of the last ones that did.
-- Index: the primary keys. Locks: none.
with spans as (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, low, high,
        greatest(high - low + 1 - (messages - finished), 0) as sure,
        sum(greatest(high - low + 1 - (messages - finished), 0))
            over (order by finished_at desc rows unbounded preceding) as so_far
    from (
        select
            claimed.id as range_id, messages, consumer, popped_at, lease_until, finished_at, left_ids, apart_ids,
            (
                coalesce(json_length(left_ids), case when finished_at is not null then messages else 0 end)
                - coalesce(json_length(apart_ids), 0)
            ) as finished, interval_of.low, interval_of.high
        from tq_events__s1__ranges as claimed
        straight_join json_table(
            claimed.pieces, '$[*]' columns (low bigint path '$[0]', high bigint path '$[1]')
        ) as interval_of
    ) as piece
    where finished > 0 and finished_at > coalesce(cast(:now as datetime(6)), utc_timestamp(6)) - interval :age second and finished_at <= coalesce(cast(:now as datetime(6)), utc_timestamp(6))
        and range_id >= (select min(id) from (select id from tq_events__s1__ranges order by id desc limit :n) as claimed)
)
select
    producer,
    consumer,
    timestampdiff(microsecond, pushed_at, popped_at) / 1e6 as wait,
    timestampdiff(microsecond, popped_at, finished_at) / 1e6 as run,
    1 as attempts,
    timestampdiff(microsecond, finished_at, coalesce(cast(:now as datetime(6)), utc_timestamp(6))) / 1e6 as ago
from spans
straight_join tq_events as log force index (primary) on log.id between spans.low and spans.high
where so_far - sure < :n
    and (left_ids is null or json_contains(left_ids, cast(log.id as char)))
    and (apart_ids is null or not json_contains(apart_ids, cast(log.id as char)))
order by finished_at desc
limit :n;

-- range_stay
-- As range_wait, in a packet, if range :id is the last one still: then what was found before still holds. Else
-- @tq_stays is false, or another session has just added a range, and that is a duplicate key.
-- Index: the primary key. Locks: the new row.
insert into tq_events__s1__ranges (id, first_offset, last_offset, messages, ids_sum, pieces, popped_at, finished_at)
select :id + 1, last_offset + 1, last_offset, 0, 0, '[]', utc_timestamp(6), utc_timestamp(6)
from (select id, last_offset from tq_events__s1__ranges order by id desc limit 1) as last
where id = :id;
set @tq_stays = @tq_stays and row_count();

-- range_until_next
-- Seconds until a message can be popped: 0 if one is ready, null if none is to come. For consumers that wait. If it is
-- not 0, the holes tell whether a message was committed late: each repeats the condition of the last statement.
-- Indexes: tq_events__s1__state, tq_events__s1__lease, the primary keys; one entry of each, and one for each hole. Locks: none.
select
    case
        when paused.until is not null then timestampdiff(microsecond, coalesce(cast(:now as datetime(6)), utc_timestamp(6)), paused.until) / 1e6
        when exists (select 1 from tq_events__s1 force index (tq_events__s1__state) where state = 'ready')
            or (select max(id) from tq_events) > (select max(last_id) from tq_events__runs)
            or (select first_offset + last_id - first_id from tq_events__runs order by first_offset desc limit 1)
                > (select last_offset from tq_events__s1__ranges order by id desc limit 1) then 0
        else timestampdiff(microsecond, coalesce(cast(:now as datetime(6)), utc_timestamp(6)), least(
            coalesce((
                select min(sweep_at) from tq_events__s1 force index (tq_events__s1__state) where state = 'scheduled'
            ), '9999-01-01'),
            coalesce((
                select min(sweep_at) from tq_events__s1 force index (tq_events__s1__state) where state = 'in_progress'
            ), '9999-01-01'),
            coalesce((select min(lease_until) from tq_events__s1__ranges where lease_until is not null), '9999-01-01')
        )) / 1e6
    end as seconds,
    paused.until is not null as paused
from (select max(until) as until from tq__paused where name = 'tq_events__s1' and until > coalesce(cast(:now as datetime(6)), utc_timestamp(6))) as paused;
select first_id, last_id from tq_events__holes where first_id > 0;
select id from tq_events force index (primary) where id between :low and :high;

-- range_wait
-- Let no claim of a subscription run until the transaction ends: add a range without messages at the position, whose id
-- the next claim would have. If another session has claimed meanwhile, that is a duplicate key, and it is repeated.
-- Index: the primary key. Locks: the new row.
insert into tq_events__s1__ranges (id, first_offset, last_offset, messages, ids_sum, pieces, popped_at, finished_at)
select last_insert_id(id + 1), last_offset + 1, last_offset, 0, 0, '[]', utc_timestamp(6), utc_timestamp(6)
from (select id, last_offset from tq_events__s1__ranges order by id desc limit 1) as last;

-- sequence
-- Give the messages that have become visible their offsets: those above the last run, and those in the last :n holes.
-- Never in a transaction of a caller: at READ COMMITTED each statement sees what was committed before it began.
-- The first five statements are one round trip, and look without locks: at the number of the changes so far, which the
-- row of the id 0 has in last_id, at the last run, at the holes, and at the islands above the runs: ids without a gap.
-- The sixth one looks into the holes, each of which repeats its condition, from the last to the first. So if it sees a
-- message of a transaction, it sees those with lower ids, too, and gives all of them their offsets in the order of
-- their ids.
-- The part computes the new :runs; :ids, the first ids of the holes that were filled; and :pieces, the new holes. A run
-- that continues the last one makes it longer, unless that one tells what was dropped.
-- The other statements are one transaction and one round trip. If another session has changed something since the look,
-- :version is not the number any more, and they change nothing.
-- Indexes: the primary keys, tq_events__s1__last_id. Locks: the row of the id 0, for as long as the server needs. A crash
-- leaves all or nothing.
select last_id from tq_events__holes where first_id = 0;
select first_offset, first_id, last_id, first_offset > (select min(first_offset) from tq_events__runs),
    (select max(last_id) from tq_events__runs)
from tq_events__runs
order by first_offset desc
limit 1;
select first_id, last_id from tq_events__holes where first_id > 0 order by first_id desc limit :n;
select max(last_id) into @tq_highest from tq_events__runs;
select min(id) as low, max(id) as high
from (
    select id, id - row_number() over (order by id) as island
    from (
        select id from tq_events force index (primary) where id > @tq_highest order by id limit 100000
    ) as fresh
) as numbered
group by island;
select id from tq_events force index (primary) where id between :low and :high order by id limit 100000;
update tq_events__holes set last_id = last_id - 1 where first_id = 0 and last_id = :version;
set @tq_first = row_count();
update tq_events__runs set last_id = :last_id where first_offset = :first_offset and @tq_first;
insert into tq_events__runs (first_offset, first_id, last_id)
select first_offset, low, high from json_table(:runs, '$[*]' columns (first_offset bigint path '$[0]', low bigint path '$[1]', high bigint path '$[2]')) as run where @tq_first;
delete tq_events__holes from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_events__holes force index (primary) on tq_events__holes.first_id = given.id
where @tq_first;
insert into tq_events__holes (first_id, last_id, seen_at)
select low, high, utc_timestamp(6) from json_table(:pieces, '$[*]' columns (low bigint path '$[0]', high bigint path '$[1]')) as piece where @tq_first;
select @tq_first;

-- topic_bounds
-- The first offset of the log, and the one after the last.
-- Index: the primary key of the runs. Locks: none.
select
    (select first_offset + 1 from tq_events__runs order by first_offset limit 1),
    (select first_offset + last_id - first_id + 1 from tq_events__runs order by first_offset desc limit 1);

-- topic_push
-- Push one message to the log.
-- One statement in autocommit: one round trip. The id is the one that the driver gets back with the answer.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
insert into tq_events (payload, headers, producer, group_key, pushed_at)
values (:payload, :headers, :producer, :group, coalesce(cast(:now as datetime(6)), utc_timestamp(6)));

-- topic_push_rows
-- A bulk push to the log: the engine repeats the row, up to a megabyte a statement. The rows of one INSERT ... VALUES
-- get consecutive ids in every innodb_autoinc_lock_mode; the first comes back with the answer.
-- More than one statement go in a transaction: all of the batch, or none.
insert into tq_events (payload, headers, producer, group_key, pushed_at)
values (:payload, :headers, :producer, :group, :pushed_at);

-- topic_pushed_at
-- When the message was pushed that has the highest id up to the offset :start. These times never go back, so that one
-- can search by them, though a message that was committed late comes after younger ones.
-- Indexes: the primary keys. Locks: none.
select pushed_at from tq_events where id = (
    select max(least(last_id, first_id + :start - first_offset)) from tq_events__runs where first_offset <= :start
);

-- topic_rows
-- The messages at the offsets from :start on and before :end, mostly in their order.
-- The first statement finds the runs. Each of them repeats the condition of the second one.
-- Indexes: the primary keys. Locks: none.
(
    select first_offset, first_id, last_id
    from tq_events__runs where first_offset <= :start order by first_offset desc limit 1
)
union all
(
    select first_offset, first_id, last_id
    from tq_events__runs where first_offset > :start and first_offset < :end order by first_offset
);
select id, payload, headers, convert(group_key using utf8mb4) as group_key, producer, pushed_at
from tq_events force index (primary)
where id between :low and :high;

-- topic_size
-- What the log has: the number of its messages, the bytes with the index as the statistics of the table have them, and
-- the seconds since the first message was pushed. Messages in holes are not counted.
-- Indexes: the primary keys, that of the runs by last_id. Locks: none.
select
    (select first_offset + last_id - first_id from tq_events__runs order by first_offset desc limit 1)
        - (select first_offset from tq_events__runs order by first_offset limit 1)
        + (select count(*) from tq_events where id > (select last_id from tq_events__runs order by last_id desc limit 1)),
    (
        select cast(coalesce(sum(data_length + index_length), 0) as signed)
        from information_schema.tables
        where table_schema = database() and table_name = 'tq_events'
    ),
    (
        select timestampdiff(microsecond, pushed_at, coalesce(cast(:now as datetime(6)), utc_timestamp(6))) / 1e6
        from tq_events where pushed_at is not null order by id limit 1
    );

-- topic_stats_pushed
-- Count the messages pushed less than :age seconds ago by moment, among the :n highest ids of the
-- log. Returns the producer, how many seconds ago, and the number of messages.
-- Index: the primary key, backwards, for :n rows: no index has the time of a push, but ids rise with it. Locks: none.
select producer, timestampdiff(microsecond, pushed_at, coalesce(cast(:now as datetime(6)), utc_timestamp(6))) / 1e6 as ago, count(*) as pushed
from (select producer, pushed_at from tq_events order by id desc limit :n) as newest
where pushed_at > coalesce(cast(:now as datetime(6)), utc_timestamp(6)) - interval :age second and pushed_at <= coalesce(cast(:now as datetime(6)), utc_timestamp(6))
group by producer, pushed_at;

-- topic_trim
-- Drop messages that come before the offset :start: up to :n of them, in the order of the offsets.
-- The first two statements look without locks, as in sequence: the second one finds runs, of which the first one is the
-- last message that was dropped before. The part chooses :ids of messages, and computes :runs: the last message that is
-- dropped now, and what is left of a run. The others are one transaction and one round trip, and change nothing if
-- another session has given offsets meanwhile. They delete the messages, and replace the runs up to the offset
-- :last_offset by these.
-- Three of them are left out while there is more to drop. They find without locks, and delete, rows that have closed
-- holes, below all ids that are in runs or holes still; :highest is the highest id that was ever dropped. What is that
-- old is dropped, so nothing that was to be kept is lost if an insert has such an id, and has waited since then.
-- Indexes: the primary keys, tq_events__last_id. Locks: the rows. A crash leaves all of a call, or nothing.
select last_id from tq_events__holes where first_id = 0;
select first_offset, first_id, last_id from tq_events__runs where first_offset < :start order by first_offset limit :n;
update tq_events__holes set last_id = last_id - 1 where first_id = 0 and last_id = :version;
set @tq_first = row_count();
delete tq_events from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_events force index (primary) on tq_events.id = given.id where @tq_first;
delete from tq_events__runs where first_offset <= :last_offset and @tq_first;
insert into tq_events__runs (first_offset, first_id, last_id)
select first_offset, low, high from json_table(:runs, '$[*]' columns (first_offset bigint path '$[0]', low bigint path '$[1]', high bigint path '$[2]')) as run where @tq_first;
select least(
    :highest + 1,
    coalesce((select min(first_id) from tq_events__holes where first_id > 0), :highest + 1),
    coalesce((
        select first_id from tq_events__runs force index (tq_events__last_id)
        where first_offset > :last_offset order by last_id limit 1
    ), :highest + 1)
) into @tq_lowest;
select json_arrayagg(id) into @tq_closed
from (
    select id from tq_events force index (primary) where id < @tq_lowest and pushed_at is null order by id limit 10000
) as closed;
delete tq_events
from json_table(@tq_closed, '$[*]' columns (id bigint path '$')) as given
straight_join tq_events force index (primary) on tq_events.id = given.id
where @tq_first;
select @tq_first;

