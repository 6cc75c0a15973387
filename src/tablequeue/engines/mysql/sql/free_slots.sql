-- Up to :look of the places whose message is no longer in progress, with their notes. A look without locks, before the
-- claim begins. At random, so that claims at once do not look for the same ones.
-- Index: the primary key. Locks: none.
select slot, message, token
from {slots} as place
where not exists (
    select 1 from {queue} as message force index (primary)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
)
order by rand()
limit :look;
