-- The range that was claimed under :token. No row, if the snapshot of the transaction is older than the claim.
-- Index: {table}__token. Locks: none.
select id from {ranges} force index ({table}__token) where token = :token;
