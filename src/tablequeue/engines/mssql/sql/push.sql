-- Pushes into a queue.

-- name: push
-- Nothing is pushed if a live message has its :key. Index: {table}__key, for the key only. READCOMMITTEDLOCK: under
-- READ_COMMITTED_SNAPSHOT too, the look at the key waits for another transaction that is pushing the same one. If two
-- transactions look at the same moment, the unique index refuses the second insert (error 2601), and messages.py
-- returns that the key is taken.
-- A crash before the commit leaves nothing.
declare @due datetime2(6) = coalesce(cast(:due as datetime2(6)), {now_and_delay});
-- [expires]
declare @expires float = coalesce(cast(:expires as float), {expires});
-- [end]
insert into {queue} (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{extra})
{note_inserted}output inserted.id
select
    @payload, @headers, @producer, @priority, @group, @key, @now, @due,
    case when @due > @now then '{pushed_scheduled}' else '{pushed_ready}' end{until}{in_batch}
where @key is null
    or not exists (
        select 1 from {queue} as there with (readcommittedlock)
        where there.dedup_key = @key and there.dedup_key is not null
    );

-- name: push_many
-- Push a batch of messages, in the order of the JSON array :payloads: all of them, or none.
-- INSERT ... SELECT ... ORDER BY assigns the identities in that order. OUTPUT returns them in any order, so the caller
-- sorts the ids to match them with the messages.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
declare @due datetime2(6) = coalesce(cast(:due as datetime2(6)), {now_and_delay});
-- [expires]
declare @expires float = coalesce(cast(:expires as float), {expires});
-- [end]
insert into {queue} (payload, headers, producer, priority, group_key, pushed_at, due_at, state{extra})
output inserted.id
select
    {payload_of_value}, @headers, @producer, @priority, @group, @now, @due,
    case when @due > @now then '{pushed_scheduled}' else '{pushed_ready}' end{until}{in_batch}
from openjson(@payloads) as batch
order by cast(batch.[key] as int);

-- name: push_each
-- Push a batch of messages with options of their own, in the order of the JSON array :rows; null for each whose key a
-- message has already, or an earlier row of the batch.
-- First it decides which rows are fresh, which means that their keys are free. The identities rise with the place (see
-- push_many), so that the nth id belongs to the nth fresh row. OUTPUT could not tell: in an INSERT it has no columns of
-- the source.
-- Index: {table}__key. Locks: a row waits for another transaction that is pushing the same key. If one pushes the key
-- between the look and the insert, the unique index refuses the insert (error 2601), and all of it is tried again.
-- In one transaction: a crash leaves nothing.
declare @batch table (
    place int not null primary key,
    payload {payload_type} not null,
    headers nvarchar(max) null,
    priority int not null,
    group_key varbinary(1020) null,
    dedup_key varbinary(1020) null,
    due_at datetime2(6) null,
    fresh bit not null,
    -- [expires]
    expires_at datetime2(6) null,
    -- [end]
    index by_key nonclustered (dedup_key, place)
);
declare @pushed table (id bigint not null primary key);
insert into @batch (place, payload, headers, priority, group_key, dedup_key, due_at, fresh{expires_at})
select
    cast(entry.[key] as int), {payload_of_row}, given.headers, given.priority,
    convert(varbinary(1020), given.group_key), convert(varbinary(1020), given.dedup_key),
    coalesce(given.due, later.due), 1{own_until}
from openjson(@rows) as entry
cross apply openjson(entry.value) with (
    payload nvarchar(max) '$.payload',
    headers nvarchar(max) '$.headers',
    priority int '$.priority',
    group_key nvarchar(510) '$.group',
    dedup_key nvarchar(510) '$.key',
    due datetime2(6) '$.due',
    -- [expires]
    expires float '$.expires',
    -- [end]
    delay float '$.delay'
) as given
cross apply (
    select {now_and_given_delay} as due
) as later;
update batch
set fresh = 0
from @batch as batch
where batch.dedup_key is not null
    and (
        exists (
            select 1 from @batch as earlier
            where earlier.dedup_key = batch.dedup_key and earlier.place < batch.place
        )
        or exists (
            select 1 from {queue} as there with (readcommittedlock)
            where there.dedup_key = batch.dedup_key and there.dedup_key is not null
        )
    );
insert into {queue} (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{extra})
output inserted.id into @pushed (id)
select
    payload, headers, @producer, priority, group_key, dedup_key, @now, due_at,
    case when due_at > @now then '{pushed_scheduled}' else '{pushed_ready}' end{expires_at}{in_batch}
from @batch
where fresh = 1
order by place;
{note_batch}select pushed.id, batch.place
from (
    select place, fresh, row_number() over (partition by fresh order by place) as nth from @batch
) as batch
left join (
    select id, row_number() over (order by id) as nth from @pushed
) as pushed on batch.fresh = 1 and pushed.nth = batch.nth
order by batch.place;
