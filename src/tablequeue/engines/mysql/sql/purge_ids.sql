-- Delete those of :ids that are {state}. Index: the primary key.
delete message
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and state = '{state}';
