-- Claim the next range of up to :n messages under a new lease; see create_ranges.
select
    {claimed}
from {claim_range}(
    :n, cast(:token as uuid), cast(:consumer as text), :lease, {now}, :all_holes, :durable
);
