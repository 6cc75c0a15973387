-- Lock the range under :token, if it is in progress. Return it: its ids, and those of the messages that have left it
-- and that were set apart.
-- Index: {table}__token. Locks: the row.
select id, pieces, left_ids, apart_ids
from {ranges} force index ({table}__token)
where token = :token and lease_until is not null
for update;
