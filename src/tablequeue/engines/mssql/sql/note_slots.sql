-- Note in each place of :places, which the transaction has locked, the message that it has claimed.
-- Index: the primary key. Locks: the rows. In one transaction with the claim: after a crash none is noted.
declare @places nvarchar(max) = cast(:places as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
update place
set message = noted.message, token = @token
from {slots} as place with (rowlock, forceseek)
join openjson(@places) with (slot int, message bigint) as noted on place.slot = noted.slot;
