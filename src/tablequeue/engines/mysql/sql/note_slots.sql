-- Note in each place of :places, which the transaction has locked, the message that it has claimed.
-- Index: the primary key. Locks: the rows. In one transaction with the claim: after a crash none is noted.
update json_table(:places, '$[*]' columns (slot int path '$.slot', message bigint path '$.message')) as noted
straight_join {slots} as place force index (primary) on place.slot = noted.slot
set place.message = noted.message, place.token = :token;
