-- Delete those of :ids that are {state}. Index: the primary key.
delete {queue}
from {given} straight_join {queue} force index (primary) on {queue}.id = given.id and state = '{state}';
