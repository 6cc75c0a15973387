-- How many messages the JSON array :attempts of the write :write staged. Index: {table}__staged_order, the range of the
-- write. Locks: none that another write waits for.
declare @write varchar(255) = cast(:write as varchar(255));
declare @attempts nvarchar(max) = cast(:attempts as nvarchar(max));
declare @given table (attempt char(32) collate Latin1_General_100_BIN2 not null primary key);
insert into @given (attempt)
select distinct cast(entry.value as char(32))
from openjson(@attempts) as entry;
select count_big(*) as staged
from {staged}
where write_id = @write and attempt in (select attempt from @given);
