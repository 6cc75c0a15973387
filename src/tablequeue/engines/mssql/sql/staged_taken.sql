-- Up to 100 keys of what the JSON array :attempts of the write :write staged that messages have already, or that are
-- there twice. READCOMMITTEDLOCK: under READ_COMMITTED_SNAPSHOT too, the look at a key waits for another transaction
-- that is pushing the same one.
-- Indexes: {table}__staged_key, {table}__key. Locks: shared ones while it reads.
declare @write varchar(255) = cast(:write as varchar(255));
declare @attempts nvarchar(max) = cast(:attempts as nvarchar(max));
declare @given table (attempt char(32) collate Latin1_General_100_BIN2 not null primary key);
insert into @given (attempt)
select distinct cast(entry.value as char(32))
from openjson(@attempts) as entry;
select top (100) convert(nvarchar(510), taken.dedup_key) as dedup_key
from (
    select batch.dedup_key
    from {staged} as batch
    where batch.write_id = @write and batch.attempt in (select attempt from @given)
        and exists (
            select 1 from {queue} as there with (readcommittedlock)
            where there.dedup_key = batch.dedup_key and there.dedup_key is not null
        )
    union
    select dedup_key
    from {staged}
    where write_id = @write and attempt in (select attempt from @given) and dedup_key is not null
    group by dedup_key
    having count_big(*) > 1
) as taken
order by taken.dedup_key;
