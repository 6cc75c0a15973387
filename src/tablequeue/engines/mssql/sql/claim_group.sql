-- Claim up to :n ready messages of the group :group under a new lease, in order of ids. The groups keep their turns.
-- Index: {table}__ready, by the slot of the group; another group may have the same slot. Locks: as claim.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
declare @n bigint = :n;
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @consumer nvarchar(512) = cast(:consumer as nvarchar(512));
declare @lease float = cast(:lease as float);
declare @group varbinary(1020) = convert(varbinary(1020), cast(:group as nvarchar(510)));
declare @slot bigint = cast(substring(hashbytes('MD5', @group), 1, 8) as bigint);
declare @now datetime2(6) = {now};
declare @until datetime2(6) = {now_and_lease};
with next as (
    select top (@n)
        {queue_row without producer}
    from {queue} with (index ({table}__ready), {claim_locks})
    where {claimable} and slot = @slot and group_key = @group
    order by id
)
update next
set state = 'in_progress',
    attempts = attempts + 1,
    token = @token,
    consumer = @consumer,
    popped_at = @now,
    first_popped_at = coalesce(first_popped_at, @now),
    lease_until = @until
output
    {claimed of inserted};
