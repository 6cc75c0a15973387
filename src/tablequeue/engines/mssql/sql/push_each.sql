-- Push a batch of messages with options of their own, in the order of the JSON array :rows; null for each whose key a
-- message has already, or an earlier row of the batch.
-- First it decides which rows are fresh, which means that their keys are free. The identities rise with the place (see
-- push_many), so that the nth id belongs to the nth fresh row. OUTPUT could not tell: in an INSERT it has no columns of
-- the source.
-- Index: {table}__key. Locks: a row waits for another transaction that is pushing the same key. If one pushes the key
-- between the look and the insert, the unique index refuses the insert (error 2601), and all of it is tried again.
-- In one transaction: a crash leaves nothing.
declare @rows nvarchar(max) = cast(:rows as nvarchar(max));
declare @producer nvarchar(512) = cast(:producer as nvarchar(512));
declare @now datetime2(6) = {now};
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
insert into {queue} (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{expires_at})
output inserted.id into @pushed (id)
select
    payload, headers, @producer, priority, group_key, dedup_key, @now, due_at,
    case when due_at > @now then '{pushed_scheduled}' else '{pushed_ready}' end{expires_at}
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
