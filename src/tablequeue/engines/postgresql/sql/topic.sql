-- The log of a topic: push, give offsets, read, trim.

-- name: topic_push
-- Returns the id, and whether waiting consumers must be notified from another connection.
-- Locks: none that another transaction waits for; NOTIFY's, as in push. A crash before the commit leaves nothing.
with pushed as (
    insert into {log} (pushed_at, producer, group_key, headers, payload)
    values (
        {now}, cast(:producer as text), cast(:group as text), cast(:headers as json),
        cast(:payload as {payload_type})
    )
    returning id
)
select id, {waited_for} as waited_for from pushed;

-- name: topic_push_many
-- Push a batch of messages in one statement, in the order of the array: all of them, or none.
-- Returns the ids, and as in push, whether waiting consumers must be notified from another connection.
-- Locks: none that another transaction waits for; NOTIFY's, as in push. A crash before the commit leaves nothing.
with pushed as (
    insert into {log} (pushed_at, producer, group_key, headers, payload)
    select
        {now}, cast(:producer as text), cast(:group as text), cast(:headers as json),
        cast(payload as {payload_type})
    from unnest(cast(:payloads as {array_type}[])) with ordinality as batch (payload, place)
    order by place
    returning id
)
select id, {waited_for} as waited_for from pushed;

-- name: topic_reserve
-- For a bulk push: :n ids from the sequence in one row. In one transaction with topic_copy, which has its id before the
-- ids of the messages are given: see create_topic.
select array_agg(nextval('{log}__ids')) from generate_series(1, :n) where pg_current_xact_id() is not null;

-- name: topic_copy
-- A bulk push: the messages come in COPY's binary format, with the ids that topic_reserve gave. All of them, or none.
-- Their time is the default: to read it 20,000 times took a fifth of the server's time.
copy {log} (id, payload, headers, producer, group_key) from stdin (format binary);

-- name: topic_push_each
-- Push a batch of messages, each with a group and headers of its own: all of them, or none. As topic_push_many.
with pushed as (
    insert into {log} (pushed_at, producer, group_key, headers, payload)
    select
        {now}, cast(:producer as text), group_key, cast(headers as json),
        cast(payload as {payload_type})
    from unnest(
        cast(:payloads as {array_type}[]), cast(:groups as text[]), cast(:headers as text[])
    ) with ordinality as batch (payload, group_key, headers, place)
    order by place
    returning id
)
select id, {waited_for} as waited_for from pushed;

-- name: sequence
-- Give the messages that have become visible their offsets; see create_topic_functions.
select {log}__sequence(true, true);

-- name: topic_bounds
-- Indexes: those of the runs. Locks: none.
select
    (select min(first_offset) + 1 from {runs}),
    (select first_offset + last_id - first_id + 1 from {runs} order by first_offset desc limit 1);

-- name: topic_rows
-- The messages at the offsets from :start on and before :end, mostly in their order.
-- Indexes: those of the runs, the primary key of the log. Locks: none.
-- No order by: it would sort the messages, though the indexes have the order already.
select
    run.first_offset + log.id - run.first_id as message_offset, log.id, payload, headers, group_key, producer, pushed_at
from (
    select first_offset, first_id, last_id
    from {runs}
    where first_offset < :end
        and first_offset >= coalesce((select max(first_offset) from {runs} where first_offset <= :start), 0)
    order by first_offset
) as run
join {log} as log on log.id
    between run.first_id + greatest(:start - run.first_offset, 0)
    and least(run.last_id, run.first_id + :end - 1 - run.first_offset);

-- name: topic_size
-- What the log has: the number of its messages, the bytes with the index, and the seconds since the first one was
-- pushed. Messages in holes are not counted. A table without partitions has an empty pg_partition_tree.
-- Indexes: the primary keys, that of the runs by last_id. Locks: none.
select
    (select first_offset + last_id - first_id from {runs} order by first_offset desc limit 1)
        - (select min(first_offset) from {runs})
        + (select count(*) from {log} where id > {last_id}),
    (
        select cast(coalesce(sum(pg_total_relation_size(relid)), 0) as bigint)
        from (
            select relid from pg_partition_tree(cast('{log}' as regclass))
            union
            select cast('{log}' as regclass)
        ) as segments
    ),
    (select cast(extract(epoch from {now} - pushed_at) as float8) from {log} order by id limit 1);

-- name: topic_flush
-- If the log has the offset :start: have the commit of this transaction flush the WAL up to its own record, and so all
-- commits that it has seen: those that gave offsets may not have flushed (range_claim). A commit flushes only if the
-- transaction has an id and synchronous_commit is not off.
select
    cast(pg_current_xact_id() as text),
    case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end
where (select first_offset + last_id - first_id from {runs} order by first_offset desc limit 1) >= :start;

-- name: topic_trim
-- Drop the segments whose messages all come before the offset :start, and begin a new one if it is time; see
-- create_topic_functions.
select {log}__trim(:start, :age, :n, {now}, :consumed);

-- name: topic_stats_pushed
-- Those of bulk writes under way are not counted.
-- Index: the primary key, backwards, for :n rows: no index has the time of a push, but ids rise with it. Locks: none.
select producer, cast(extract(epoch from {now} - pushed_at) as float8) as ago, count(*) as pushed
from (select id, producer, pushed_at from {log} order by id desc limit :n) as newest
where not exists (select from {parts} where id between first_id and last_id)
    and pushed_at > {now} - cast(:age as float8) * interval '1 second' and pushed_at <= {now}
group by producer, pushed_at;
