-- Lock the ranges under :token. Return the messages of :ids that they hold: those that have not left them.
-- Indexes: {table}__token, the index of the runs by last_id. Locks: the rows.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @held table (
    id bigint not null primary key,
    first_offset bigint not null,
    last_offset bigint not null,
    left_ids varchar(max) null
);
declare @gone table (id bigint not null primary key);
insert into @held (id, first_offset, last_offset, left_ids)
select id, first_offset, last_offset, left_ids
from {ranges} with (index ({table}__token), rowlock, updlock, readcommittedlock)
where token = @token and lease_until is not null;
insert into @gone (id)
select distinct gone.id
from @held as held
cross apply openjson(held.left_ids) with (id bigint '$') as gone;
select given.id
from openjson(@ids) with (id bigint '$') as given
cross apply (
    select top (1) run.first_id, run.first_offset + given.id - run.first_id as message_offset
    from {runs} as run
    where run.last_id >= given.id
    order by run.last_id
) as place
where place.first_id <= given.id
    and exists (
        select 1 from @held as held where place.message_offset between held.first_offset and held.last_offset
    )
    and not exists (select 1 from @gone as gone where gone.id = given.id);
