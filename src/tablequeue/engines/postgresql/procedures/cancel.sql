-- Procedures that remove and cancel messages.

-- name: remove
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
            -- [in_order]
            return query
                {sql take low_water=0};
            -- [fair]
            -- In the order of the turns, until there are enough. The session remembers which group was served last in
            -- the setting tablequeue.{ring_of_session}.
            loop
                served := current_setting('tablequeue.{ring_of_session}');
                return query
                    with claimed (
                        {claimed_names}, slot
                    ) as (
            -- [fair unlimited none]
                        {sql take starts=ring_starts above=ring_above ends=ring_ends}
            -- [fair limited or fair keep]
                        select * from {queue}_take_turn(p_n, p_consumer, p_token, p_now, served)
            -- [fair]
                    {in_turns}
                get diagnostics removed = row_count;
                p_n := p_n - removed;
                exit when p_n <= 0 or removed = 0;
            end loop;
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

-- name: cancel
-- {queue}_cancel: cancel the messages of p_ids, for producers; returns those that there are, and whether each was told.
-- A message that waits, or is a dead letter, leaves the queue. One in progress is told to stop: if it fails, is
-- released, or loses its lease, it ends. If its consumer completes it, it is completed.
-- Locks: the messages, until the transaction ends. A crash before the commit cancels none of them.
create or replace function {queue}_cancel(
    p_ids bigint[],
    p_now timestamptz default null
) returns table (id bigint, told boolean)
language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    #variable_conflict use_column
    -- [grouped]
    declare
        within boolean := {is_within};
    -- [end]
    begin
        return query
            {sql cancel};
        -- [grouped]
        if not within then
            perform {queue}_promote(1000, p_now);
        end if;
        -- [end]
    end;
    $$;
