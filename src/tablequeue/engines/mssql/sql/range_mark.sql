-- Mark the messages of :ids, which ranges under :token hold, as left. A range is finished when all have left it.
-- Indexes: {table}__token, the primary key. Locks: the rows, which range_hold has locked. In one transaction with it.
-- A crash leaves the messages in progress until the lease expires.
-- FOR XML PATH joins the ids: STRING_AGG would need SQL Server 2017.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @now datetime2(6) = {now};
declare @left table (range_id bigint not null, id bigint not null, primary key (range_id, id));
insert into @left (range_id, id)
select held.id, given.id
from (
    select id, first_offset, last_offset
    from {ranges} with (index ({table}__token), rowlock, updlock, readcommittedlock)
    where token = @token and lease_until is not null
) as held
cross join openjson(@ids) with (id bigint '$') as given
cross apply (
    select top (1) run.first_offset + given.id - run.first_id as message_offset
    from {runs} as run
    where run.last_id >= given.id
    order by run.last_id
) as place
where place.message_offset between held.first_offset and held.last_offset;
update held
set finished_at = @now,
    left_ids = case
        when held.messages > gone.number + marked.number
            then concat(coalesce(left(held.left_ids, len(held.left_ids) - 1) + ',', '['), marked.ids, ']')
    end,
    lease_until = case when held.messages > gone.number + marked.number then held.lease_until end
from (
    select
        one.range_id, count(*) as number,
        stuff(
            (select concat(',', other.id) from @left as other where other.range_id = one.range_id for xml path('')),
            1, 1, ''
        ) as ids
    from @left as one
    group by one.range_id
) as marked
inner join {ranges} as held with (rowlock, forceseek) on held.id = marked.range_id
cross apply (select count(*) as number from openjson(held.left_ids)) as gone
where held.token = @token and held.lease_until is not null;
