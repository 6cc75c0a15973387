-- Move those of the JSON array :ids that no consumer holds, dead letters among them, from {source} to this
-- queue, in the order of their ids. They keep all but their ids and states: what is due later is scheduled, and a dead
-- letter stays one.
-- A new id is missing for each whose key a message of this queue has; then the caller rolls back. The identities rise
-- in the order of the select, as in push_many.
-- Indexes: the primary keys, sought as in complete_keep; {table}__key. Locks: the rows. In one transaction: a crash
-- leaves each message in one of the queues. The answer has the group for the notes of promote.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @now datetime2(6) = {now};
declare @moved table (id bigint not null primary key, group_key varbinary(1020) null);
declare @pushed table (id bigint not null primary key);
insert into @moved (id, group_key)
select message.id, message.group_key
from {source} as message with (rowlock, updlock, readcommittedlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.state in ('ready', 'scheduled', 'blocked', 'dead');
insert into {queue} (
    state,
    {queue_row without id state token lease_until}{expires_at}
)
output inserted.id into @pushed (id)
select
    case
        when state = 'dead' then 'dead'
        when due_at > @now then '{pushed_scheduled}'
        else '{pushed_ready}'
    end,
    {queue_row without id state token lease_until with
        due_at = {moved_due}
        group_key = {moved_group}}{expires_at}
from {source} as message with (forceseek)
where message.id in (select moved.id from @moved as moved)
    and not exists (
        select 1 from {queue} as there with (readcommittedlock)
        where there.dedup_key = message.dedup_key and there.dedup_key is not null
    )
order by message.id;
delete from message
from {source} as message with (rowlock, forceseek)
where message.id in (select moved.id from @moved as moved);
select id, cast(0 as bit) as is_new, convert(nvarchar(510), group_key) as group_key from @moved
union all
select id, cast(1 as bit), null from @pushed;
