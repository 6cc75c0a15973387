-- {queue}_remove: the rows of take, in any order. It sweeps when {queue}_claim does, and no more than it is to remove.
create or replace function {queue}_remove(
    p_n integer, p_consumer text, p_token uuid, p_now timestamptz
) returns table (
    {claimed_types}
) language plpgsql as $$
    #variable_conflict use_column
    declare
        removed integer;
        -- [fair]
        served bigint;
        -- [end]
        swept boolean := {queue}_sweep(1, p_n, p_now) is not null;
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
            -- [keep in_order]
            return query
                {sql take_keep low_water=0};
            -- [end]
            -- [none in_order]
            return query
                {sql take_none low_water=0};
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
            -- [keep fair unlimited]
                        {sql take_keep starts=ring_starts above=ring_above ends=ring_ends}
            -- [end]
            -- [none fair unlimited]
                        {sql take_none starts=ring_starts above=ring_above ends=ring_ends}
            -- [end]
            -- [fair limited]
                        select * from {queue}_take_turn(p_n, p_consumer, p_token, p_now, served)
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
                get diagnostics removed = row_count;
                p_n := p_n - removed;
                exit when p_n <= 0 or removed = 0;
            end loop;
            -- [end]
            -- [in_order]
            get diagnostics removed = row_count;
            p_n := p_n - removed;
            -- [end]
            exit when p_n <= 0 or swept;
            swept := true;
            exit when {queue}_sweep(0, p_n, p_now) = 0;
        end loop;
    end;
    $$;
revoke all on function {queue}_remove from public;
