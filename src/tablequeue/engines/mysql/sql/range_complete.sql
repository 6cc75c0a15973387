-- Complete the range that is held under :token: all :number messages of it, which have this :sum of ids.
-- The second statement is for a caller's transaction, which finds the :id first (range_id). By the token, it would lock
-- the gap between two tokens under REPEATABLE READ, where the token of the next claim may belong.
-- Indexes: {table}__token, the primary key. Locks: the row. A crash leaves it in progress until its lease expires.
update {ranges} force index ({table}__token)
set finished_at = {now}, lease_until = null
where token = :token and lease_until is not null and messages = :number and ids_sum = :sum and left_ids is null;
update {ranges} force index (primary)
set finished_at = {now}, lease_until = null
where id = :id and token = :token and lease_until is not null
    and messages = :number and ids_sum = :sum and left_ids is null;
