-- The places whose message is no longer in progress, with their notes. A look without locks, before the claim begins.
-- Index: the primary key. Locks: none.
select slot, message, token
from {slots} as place
where not exists (
    select 1 from {queue} as message force index (primary)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
);
