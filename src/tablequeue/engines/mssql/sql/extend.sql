-- Extend the lease on message :id, held under :token: it ends :lease seconds from now.
-- Index: the primary key. Locks: the row.
declare @id bigint = :id;
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @lease float = cast(:lease as float);
declare @now datetime2(6) = {now};
declare @until datetime2(6) = {now_and_lease};
update {queue} with (rowlock)
set lease_until = @until
output inserted.lease_until
where id = @id and token = @token;
