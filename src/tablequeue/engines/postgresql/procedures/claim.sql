-- {queue}_claim: the rows of pop, in any order. A session sweeps once a second before it claims. If too few messages
-- were ready, it sweeps after that too, and claims again.
-- In a caller's transaction, only the caller can claim what it sweeps until the commit. A function cannot know whether
-- it runs in one. It assumes so if the transaction has written anything or is older than a second. Then it sweeps
-- no more messages than it is to claim.
-- It has no low-water mark, which only a process can keep: while an old snapshot is open, a claim walks the index
-- entries of all messages that were ready since.
create or replace function {queue}_claim(
    p_n integer, p_consumer text, p_lease float8, p_token uuid, p_now timestamptz
) returns table (
    {claimed_types}
) language plpgsql as $$
    #variable_conflict use_column
    declare
        claimed integer;
        -- [fair]
        served bigint;
        -- [end]
        within boolean := txid_current_if_assigned() is not null or now() < statement_timestamp() - interval '1 s';
        most integer := case when within then p_n else 1000 end;
        swept boolean := {queue}_sweep(1, most, p_now) is not null;
    begin
        -- [fair]
        if coalesce(current_setting('tablequeue.{ring_of_session}', true), '') = '' then
            served := hashtextextended(cast(gen_random_uuid() as text), 0);
            perform set_config('tablequeue.{ring_of_session}', cast(coalesce((
                {sql claim_ring n=ring_steps starts=ring_starts above=ring_above ends=ring_ends}
            ), served) as text), false);
        end if;
        -- [end]
        for turn in 1..2 loop
            -- [at_least_once in_order]
            return query
                {sql claim low_water=0};
            -- [end]
            -- [at_most_once in_order]
            return query
                {sql take_keep low_water=0};
            -- [end]
            -- [fair]
            -- In the order of the turns, until there are enough. The session remembers which group was served last in
            -- the setting tablequeue.{ring_of_session}.
            loop
                served := current_setting('tablequeue.{ring_of_session}');
                return query
                    with claimed (
                        {claimed_names}, slot
                    ) as (
            -- [end]
            -- [at_least_once fair unlimited]
                        {sql claim starts=ring_starts above=ring_above ends=ring_ends}
            -- [end]
            -- [at_most_once fair unlimited]
                        {sql take_keep starts=ring_starts above=ring_above ends=ring_ends}
            -- [end]
            -- [fair limited]
                        select * from {queue}_claim_turn(p_n, p_consumer, p_lease, p_token, p_now, served)
            -- [end]
            -- [fair]
                    ), noted as (
                        select set_config('tablequeue.{ring_of_session}', cast(slot as text), false)
                        from (
                            select slot from claimed
                            order by row_number() over (partition by slot order by id) desc, slot <= served desc,
                                slot desc
                            limit 1
                        ) as last
                    )
                    select
                        {claimed_names}
                    from claimed
                    where exists (select 1 from noted)
                    order by row_number() over (partition by slot order by id), slot <= served, slot;
                get diagnostics claimed = row_count;
                p_n := p_n - claimed;
                exit when p_n <= 0 or claimed = 0;
            end loop;
            -- [end]
            -- [in_order]
            get diagnostics claimed = row_count;
            p_n := p_n - claimed;
            -- [end]
            exit when p_n <= 0 or swept;
            swept := true;
            exit when {queue}_sweep(0, most, p_now) = 0;
        end loop;
    end;
    $$;
revoke all on function {queue}_claim from public;
