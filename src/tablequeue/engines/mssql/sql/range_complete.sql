-- Complete the range that is held under :token: all :number messages of it, which have this :sum of ids.
-- Index: {table}__token. Locks: the row. A crash leaves it in progress until its lease expires.
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @number bigint = :number;
declare @sum bigint = :sum;
declare @now datetime2(6) = {now};
update held
set finished_at = @now, lease_until = null
output inserted.id
from {ranges} as held with (index ({table}__token), rowlock)
where held.token = @token and held.lease_until is not null
    and held.messages = @number and held.ids_sum = @sum and held.left_ids is null;
