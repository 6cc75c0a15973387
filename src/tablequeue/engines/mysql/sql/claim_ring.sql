-- The first :look ready messages of the groups in a segment of the ring: behind the slot :starts, up to the slot :ends.
-- With ids up to :high if that is given. A claim asks again behind the last group that it has seen.
-- Index: {claim_index}. Locks: none.
select id, slot
from {queue} force index ({claim_index})
where {claimable} and slot > :starts and slot <= :ends and (:high is null or id <= :high)
order by slot, id
limit :look;
