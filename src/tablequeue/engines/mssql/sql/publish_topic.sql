-- Push to a log what the JSON array :attempts of the write :write staged, in the order of their parts, all at once.
-- Returns the number. One statement for all of them, as publish.
-- Index: {table}__staged_order. Locks: none that another transaction waits for.
-- One transaction with writer_advance: a crash publishes none.
declare @write varchar(255) = cast(:write as varchar(255));
declare @attempts nvarchar(max) = cast(:attempts as nvarchar(max));
declare @given table (attempt char(32) collate Latin1_General_100_BIN2 not null primary key);
declare @producer nvarchar(512) = cast(:producer as nvarchar(512));
declare @now datetime2(6) = {now};
insert into @given (attempt)
select distinct cast(entry.value as char(32))
from openjson(@attempts) as entry;
insert into {log} (payload, headers, producer, group_key, pushed_at)
select payload, headers, @producer, group_key, @now
from {staged}
where write_id = @write and attempt in (select attempt from @given)
order by part, place;
select rowcount_big() as pushed;
