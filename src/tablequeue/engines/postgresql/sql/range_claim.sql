-- Claim the next range of up to :n messages under a new lease. With :held, first complete the range under that token.
-- While claims are paused it claims none. See create_ranges.
select
    {claimed}
from {claim_range}(
    case when {unpaused} then :n else 0 end, cast(:token as uuid), cast(:consumer as text), :lease, {now},
    :all_holes, cast(:held as uuid), cast(:number as integer), cast(:sum as bigint)
);
