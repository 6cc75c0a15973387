-- Claim the next range of up to :n messages under a new lease. With :held, first complete the range under that token.
-- Then, after a commit, read its messages: see create_range_functions. A connection of our own sends both together.
select {claim_range}(
    :n, cast(:token as uuid), cast(:consumer as text), :lease, {now}, :all_holes, cast(:held as uuid),
    cast(:number as integer), cast(:sum as bigint)
);
select
    {claimed with errors = cast(null as jsonb)}
from {read_range}(cast(:token as uuid));
