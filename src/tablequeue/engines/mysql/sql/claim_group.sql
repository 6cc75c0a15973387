-- Claim up to :n ready messages of the group :group under a new lease, in order of ids. The groups keep their turns.
-- Lock them, then mark them. They are read after the commit: see claimed.
-- Index: {claim_index}, by the slot of the group; another group may have the same slot. Then the primary key.
-- Locks: the rows; rows that another claim has locked are skipped. A crash before the commit claims none.
select id
from {queue} force index ({claim_index})
where {claimable} and slot = cast(conv(left(md5(:group), 16), 16, 10) as unsigned) >> 1
    and group_key = :group
order by slot, id
limit :n
for update skip locked;
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = :popped_at,
    first_popped_at = coalesce(first_popped_at, :popped_at),
    lease_until = :lease_until
where {indexed};
