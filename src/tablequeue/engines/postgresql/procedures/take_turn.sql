-- {queue}_take_turn: one take of a fair queue with limits, for {queue}_remove; see {queue}_claim_turn.
create or replace function {queue}_take_turn(
    p_n integer, p_consumer text, p_token uuid, p_now timestamptz, served bigint
) returns table (
    {claimed_types}, slot bigint
) language plpgsql as $$
    #variable_conflict use_column
    begin
        -- [keep]
        return query
            {sql take_keep starts=ring_starts above=ring_above ends=ring_ends};
        -- [end]
        -- [none]
        return query
            {sql take_none starts=ring_starts above=ring_above ends=ring_ends};
        -- [end]
    end;
    $$;
revoke all on function {queue}_take_turn from public;
