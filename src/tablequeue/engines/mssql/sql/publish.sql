-- Push what the JSON array :attempts of the write :write staged, in the order of their parts. Returns the number.
-- A message whose key is taken, even by an earlier one of them, is left out; the caller counts the others.
-- One statement for all of them, unlike push_many: it locks rows that no other transaction can see yet, the locks last
-- until the commit in any case, and they are not escalated.
-- If another transaction pushes one of the keys between the look (READCOMMITTEDLOCK, as in push) and the insert, the
-- unique index refuses the insert (error 2601), and the transaction is tried again.
-- Indexes: {table}__staged_order, {table}__staged_key, {table}__key.
-- One transaction with writer_advance: a crash publishes none.
declare @write varchar(255) = cast(:write as varchar(255));
declare @attempts nvarchar(max) = cast(:attempts as nvarchar(max));
declare @given table (attempt char(32) collate Latin1_General_100_BIN2 not null primary key);
declare @producer nvarchar(512) = cast(:producer as nvarchar(512));
declare @group varbinary(1020) = convert(varbinary(1020), cast(:group as nvarchar(510)));
declare @now datetime2(6) = {now};
-- [expires]
declare @expires float = coalesce(cast(:expires as float), {expires});
-- [end]
insert into @given (attempt)
select distinct cast(entry.value as char(32))
from openjson(@attempts) as entry;
insert into {queue} (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{expires_at})
select
    payload, headers, @producer, coalesce(priority, 0), coalesce(group_key, @group), dedup_key, @now,
    coalesce(due_at, {default_due}), case when due_at > @now then '{pushed_scheduled}' else '{pushed_ready}' end{until}
from {staged} as batch
where write_id = @write and attempt in (select attempt from @given)
    and not exists (
        select 1 from {staged} as earlier
        where earlier.write_id = @write and earlier.attempt in (select attempt from @given)
            and earlier.dedup_key = batch.dedup_key and earlier.dedup_key is not null
            and (earlier.part < batch.part or (earlier.part = batch.part and earlier.place < batch.place))
    )
    and not exists (
        select 1 from {queue} as there with (readcommittedlock)
        where there.dedup_key = batch.dedup_key and there.dedup_key is not null
    )
order by part, place;
select rowcount_big() as pushed;
