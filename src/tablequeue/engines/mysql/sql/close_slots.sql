-- Close a place for each message in progress that has none: it was claimed by a consumer that did not know of the limit
-- yet. Find the closed places whose message is no longer in progress, in @tq_ids, and remove them, in one transaction.
-- Index: the primary keys, {table}__state. Locks: the places; locked ones are skipped, and no message is locked. A
-- DELETE with this condition would lock the messages, and wait for an application that has finished one in its
-- transaction. A crash leaves all or nothing.
select place.slot as id from {slots} as place force index (primary)
where place.slot < 0 and not exists (
    select 1 from {queue} as message force index (primary)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
)
for update skip locked;
delete place
from json_table(:ids, '$[*]' columns (slot bigint path '$')) as given
straight_join {slots} as place force index (primary) on place.slot = given.slot;
insert ignore into {slots} (slot, message, token)
select -message.id, message.id, message.token
from {queue} as message
where message.state = 'in_progress' and not exists (
    select 1 from {slots} as place where place.message = message.id and place.token = message.token
);
