-- Cancel the messages of :ids. Those in progress are told to stop. The others leave the queue: they move to the history
-- as cancelled, or are deleted if the queue keeps none. The first statement returns each message, and whether it is to
-- be told.
-- Index: the primary key. Locks: the rows; it waits for claims and finishes under way. A crash leaves all or nothing.
select message.id, message.state = 'in_progress' as told
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
for update;
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set cancelled_at = coalesce(cancelled_at, {now})
where state = 'in_progress';
-- [keep]
insert into {history} (
    {history_row without token},
    outcome
)
select
    {history_row without token with
        id = message.id
        finished_at = {now}},
    'cancelled'
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where state <> 'in_progress'
for update;
-- [end]
delete {queue}
from {given} straight_join {queue} force index (primary) on {queue}.id = given.id and state <> 'in_progress';
