-- Note the groups of what the JSON array :attempts of the write :write staged, for promote, in the transaction that
-- publishes it: one note a group, where the OUTPUT of publish would write one for every message. In the order of their
-- first messages, in which promote takes them up.
-- Index: {table}__staged_order, the range of the write. Locks: none that another transaction waits for.
declare @write varchar(255) = cast(:write as varchar(255));
declare @attempts nvarchar(max) = cast(:attempts as nvarchar(max));
declare @group varbinary(1020) = convert(varbinary(1020), cast(:group as nvarchar(510)));
declare @given table (attempt char(32) collate Latin1_General_100_BIN2 not null primary key);
insert into @given (attempt)
select distinct cast(entry.value as char(32))
from openjson(@attempts) as entry;
insert into {turns} (group_key)
select coalesce(group_key, @group)
from {staged}
where write_id = @write and attempt in (select attempt from @given)
group by coalesce(group_key, @group)
order by min(part), min(place);
