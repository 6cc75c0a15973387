-- Close a place for each message in progress that has none: it was claimed by a consumer that did not know of the limit
-- yet. Remove the closed places whose message is no longer in progress.
-- Index: the primary keys, {table}__in_progress. Locks: the rows. A crash leaves some of it for the next time.
declare @first bigint = 0;
delete place
from {slots} as place with (rowlock, readcommittedlock)
where place.slot < @first and not exists (
    select 1 from {queue} as message with (forceseek)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
);
insert into {slots} with (rowlock) (slot, message, token)
select @first - message.id, message.id, message.token
from {queue} as message with (readcommittedlock)
where message.state = 'in_progress'
    and not exists (
        select 1 from {slots} as place with (readcommittedlock)
        where place.message = message.id and place.token = message.token
    )
    and not exists (select 1 from {slots} as place with (readcommittedlock) where place.slot = -message.id);
