-- Extend the leases on the ranges under :token that hold messages of :ids: they end :lease seconds from now.
-- Returns these messages.
-- Indexes: {table}__token, the index of the runs by last_id, the primary key. Locks: the rows. A crash leaves all
-- extended, or none.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @lease float = cast(:lease as float);
declare @now datetime2(6) = {now};
declare @until datetime2(6) = {now_and_lease};
declare @found table (range_id bigint not null, id bigint not null, primary key (range_id, id));
insert into @found (range_id, id)
select distinct held.id, given.id
from (
    select id, first_offset, last_offset, left_ids
    from {ranges} with (index ({table}__token), rowlock, updlock, readcommittedlock)
    where token = @token and lease_until is not null
) as held
cross join openjson(@ids) with (id bigint '$') as given
cross apply (
    select top (1) run.first_id, run.first_offset + given.id - run.first_id as message_offset
    from {runs} as run
    where run.last_id >= given.id
    order by run.last_id
) as place
where place.first_id <= given.id
    and place.message_offset between held.first_offset and held.last_offset
    and not exists (
        select 1 from openjson(held.left_ids) with (id bigint '$') as gone where gone.id = given.id
    );
update held
set lease_until = @until
from {ranges} as held with (rowlock, forceseek)
where held.id in (select one.range_id from @found as one) and held.token = @token and held.lease_until is not null;
select one.id, @until as lease_until from @found as one;
