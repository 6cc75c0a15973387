-- {queue}_claim_turn: one claim of a fair queue with limits, for {queue}_claim: a part of a round, each message with
-- the slot of its group. A function, because a statement with limits cannot be a part of another one.
create or replace function {queue}_claim_turn(
    p_n integer, p_consumer text, p_lease float8, p_token uuid, p_now timestamptz, served bigint
) returns table (
    {claimed_types}, slot bigint
) language plpgsql as $$
    #variable_conflict use_column
    begin
        -- [at_least_once]
        return query
            {sql claim starts=ring_starts above=ring_above ends=ring_ends};
        -- [end]
        -- [at_most_once]
        return query
            {sql take_keep starts=ring_starts above=ring_above ends=ring_ends};
        -- [end]
    end;
    $$;
revoke all on function {queue}_claim_turn from public;
