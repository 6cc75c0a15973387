-- Staged messages of many processes: write, publish, delete.

-- name: create_staged
-- A row is up to 10,000 messages, in arrays of one length; null is an array of nulls. Of rows of one message each,
-- 1,000,000 had to be sorted for 1.0 s and deleted for 0.5, of a write of 9. Not compressed: it is read once.
-- Unlogged: a crash of the server empties it, and publish finds that messages are missing.
-- No index: it holds the writes under way only, and each reads its own once.
-- Made at the first such write, under the creators' lock. Runs in one transaction: a crash leaves nothing.
do $$
    begin
        if to_regclass('{staged}') is null then
            create unlogged table {staged} (
                write_id text not null,
                attempt text not null,
                part integer not null,
                place bigint not null,
                payloads {staged_type}[] not null,
                headers json[],
                priorities integer[],
                groups text[],
                keys text[],
                dues timestamptz[],
                staged_at timestamptz not null default statement_timestamp()
            );
            alter table {staged} alter payloads set storage external;
            alter table {staged} replica identity full;
        end if;
    end;
    $$;
create table if not exists {writers} (
    writer text primary key,
    batch bigint not null
);

-- name: stage
-- Stage up to 10,000 messages of the write :write, which come as arrays. JSON is checked here, in the task.
-- Locks: none that another transaction waits for. After a crash the staged messages stay for a day, invisible.
insert into {staged} (write_id, attempt, part, place, payloads, headers, priorities, groups, keys, dues)
values (
    :write, :attempt, :part, :place, cast(:payload as {staged_type}[]), cast(:headers as json[]),
    cast(:priority as integer[]), cast(:group as text[]), cast(:key as text[]), cast(:due as timestamptz[])
);

-- name: topic_stage_reserve
-- Reserve :n ids for messages of the write :write. Returns runs of them, in their order. See create_topic_functions.
select first_id, last_id
from {log}__reserve(:n, :write, :attempt, cast(:part as integer), cast(:place as bigint));

-- name: topic_stage_copied
-- Mark the ids of a piece of a write as used: topic_stage_copy follows, in the same transaction. No row: the write is
-- over, and others have deleted the piece.
-- Index: the primary key. Locks: the rows, so that nobody deletes the piece meanwhile (topic_unstage). The commit need
-- not be on the disk: see create_topic_functions. A crash leaves the piece for the next write, or for a day.
update {parts} set copied = true
where first_id = any(:ids) and write_id = :write and attempt = :attempt
returning first_id, set_config('synchronous_commit', 'off', true);

-- name: topic_stage_copy
-- The messages of a bulk write come as COPY's text, with the ids that topic_stage_reserve gave. All of them, or none.
-- The server gives the time: to read it from the text for each message would take a tenth of the time.
copy {log} (id, payload, headers, group_key, producer) from stdin;

-- name: staged_count
-- It reads the whole table. Locks: none.
select coalesce(sum(cardinality(payloads)), 0)
from {staged}
where write_id = :write and attempt = any(:attempts);

-- name: staged_taken
-- Locks: none.
-- Index: {table}__key; it reads all of {staged}.
with staged as materialized (
    select unnest(keys) as dedup_key
    from {staged}
    where write_id = :write and attempt = any(:attempts)
)
select dedup_key from (
    select dedup_key from staged
    where exists (select 1 from {queue} as there where there.dedup_key = staged.dedup_key)
    union
    select dedup_key from staged where dedup_key is not null
    group by dedup_key having count(*) > 1
) as taken
order by dedup_key
limit 100;

-- name: writer_advance
-- Returns a row, or none if that batch was written before. Index: the primary key.
-- Locks: the row, until the transaction ends, in which publish follows.
insert into {writers} (writer, batch) values (:writer, :batch)
on conflict (writer) do update set batch = excluded.batch where {table}__writers.batch < excluded.batch
returning batch;

-- name: publish
-- None has a key. Index: none. Locks: none that another transaction waits for. Not publish_keyed: its on conflict takes
-- a lock and a record of the log for each row, an eighth of the time and of the log. Half of what it takes are the two
-- indexes by id, and a fifth are the ids. One transaction with writer_advance: a crash publishes none.
insert into {queue} (
    payload, headers, producer, priority, group_key, pushed_at, due_at, state{expires_at}
)
select
    payload, headers, cast(:producer as text), coalesce(priority, 0),
    coalesce(group_key, cast(:group as text)), {now}, coalesce(due_at, {default_due}),
    case when due_at > {now} then '{pushed_scheduled}' else '{pushed_ready}' end{until}
from (
    select
        unnest(payloads) as payload, unnest(headers) as headers, unnest(priorities) as priority,
        unnest(groups) as group_key, unnest(dues) as due_at
    from (
        select * from {staged}
        where write_id = :write and attempt = any(:attempts)
        order by part, place
    ) as parts
) as message;

-- name: publish_topic
-- Make what the :attempts of the write :write staged visible, in the order of their parts, all at once. See
-- create_topic_functions.
-- One transaction with writer_advance: a crash publishes none.
select {log}__publish(:write, cast(:attempts as text[]));

-- name: publish_keyed
-- Push what the :attempts of the write :write staged, in the order of their parts, all at once. A message whose key is
-- taken, even by an earlier one of them, is left out; the caller counts the others. See publish, if none has a key.
-- Index: {table}__key. Locks: a row waits for another transaction that is pushing the same key.
-- One transaction with writer_advance: a crash publishes none.
insert into {queue} (
    payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{expires_at}
)
select
    payload, headers, cast(:producer as text), coalesce(priority, 0),
    coalesce(group_key, cast(:group as text)), dedup_key, {now}, coalesce(due_at, {default_due}),
    case when due_at > {now} then '{pushed_scheduled}' else '{pushed_ready}' end{until}
from (
    select
        unnest(payloads) as payload, unnest(headers) as headers, unnest(priorities) as priority,
        unnest(groups) as group_key, unnest(keys) as dedup_key, unnest(dues) as due_at
    from (
        select * from {staged}
        where write_id = :write and attempt = any(:attempts)
        order by part, place
    ) as parts
) as message
on conflict (dedup_key) where dedup_key is not null do nothing;

-- name: unstage
-- It reads the whole table, which holds the writes under way only. A crash leaves it for the next write.
delete from {staged}
where write_id = :write or staged_at < {now} - interval '1 day';

-- name: topic_unstage
-- Delete what the write :write has staged and not published, and what any write left behind a day ago or earlier.
-- Indexes: the primary keys. Locks: the rows. A task that copies just now is left out, and deleted a day later.
-- A crash leaves it for the next write.
with left_behind as materialized (
    select first_id from {parts}
    where write_id = :write or staged_at < {now} - interval '1 day'
    for update skip locked
), gone as (
    delete from {parts} where first_id in (select first_id from left_behind)
    returning first_id, last_id
)
delete from {log} using gone where id between gone.first_id and gone.last_id;
