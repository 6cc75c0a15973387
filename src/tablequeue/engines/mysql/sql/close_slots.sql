-- Close a place for each message in progress that has none: it was claimed by a consumer that did not know of the limit
-- yet. Remove the closed places whose message is no longer in progress.
-- Index: the primary keys, {table}__state. Locks: the rows. A crash leaves some of it for the next time.
delete place from {slots} as place
where place.slot < 0 and not exists (
    select 1 from {queue} as message force index (primary)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
);
insert ignore into {slots} (slot, message, token)
select -message.id, message.id, message.token
from {queue} as message
where message.state = 'in_progress' and not exists (
    select 1 from {slots} as place where place.message = message.id and place.token = message.token
);
