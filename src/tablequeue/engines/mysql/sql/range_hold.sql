-- Lock the range under :token, if it is in progress. Return it: its ids, and those of the messages that have left it
-- and that were set apart.
-- The second statement is for a caller's transaction; see range_complete.
-- Indexes: {table}__token, the primary key. Locks: the row.
select id, pieces, left_ids, apart_ids
from {ranges} force index ({table}__token)
where token = :token and lease_until is not null
for update;
select id, pieces, left_ids, apart_ids
from {ranges} force index (primary)
where id = :id and token = :token and lease_until is not null
for update;
