-- Claim the next range of up to :n messages under a new lease. With :held, first complete the range under that token.
-- See create_ranges.
select
    {claimed}
from {claim_range}(
    :n, cast(:token as uuid), cast(:consumer as text), :lease, {now}, :all_holes, cast(:held as uuid),
    cast(:number as integer), cast(:sum as bigint)
);
