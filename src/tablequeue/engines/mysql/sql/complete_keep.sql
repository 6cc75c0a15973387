-- Complete the messages of :ids that are held under :token: they move to the history.
-- The first statement finds those that are held. All of them are one packet.
-- Index: the primary key. Locks: the rows. A crash leaves all of them completed, or none.
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
for update;
insert into {history} (
    {history_row without token}
)
select
    {history_row without token with
        id = message.id
        finished_at = {now}}
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
for update;
delete {queue}
from {given} straight_join {queue} force index (primary) on {queue}.id = given.id and token = :token;
