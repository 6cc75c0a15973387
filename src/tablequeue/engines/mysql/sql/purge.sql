-- Delete up to :n messages that are {state}, in the order of the index. Index: {table}__state.
-- Found, locked by their ids, deleted: bounded, and passing over locked rows, so that no consumer waits.
-- A crash keeps what was deleted before.
select id from {queue} force index ({table}__state) where state = '{state}' order by sweep_at, id limit :n;
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and state = '{state}'
for update skip locked;
delete {queue} from {given} straight_join {queue} force index (primary) on {queue}.id = given.id;
