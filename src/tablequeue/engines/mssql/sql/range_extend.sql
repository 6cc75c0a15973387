-- Extend the lease on the range under :token that holds the message of :ids: it ends :lease seconds from now.
-- Indexes: {table}__token, the index of the runs by last_id. Locks: the row.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @lease float = cast(:lease as float);
declare @now datetime2(6) = {now};
declare @until datetime2(6) = {now_and_lease};
update held
set lease_until = @until
output inserted.lease_until
from {ranges} as held with (index ({table}__token), rowlock)
where held.token = @token and held.lease_until is not null
    and exists (
        select 1
        from openjson(@ids) with (id bigint '$') as given
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
            )
    );
