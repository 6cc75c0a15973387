-- {queue}_complete: complete the messages of p_ids that p_token holds, for consumers; returns their ids.
-- Error TQ003 if it holds none of them: an error undoes the statement, so it cannot be raised for some of them.
-- [grouped]
-- The next messages of their groups become ready; in a transaction of the caller's by the next pop after its commit
-- that finds too little: see {queue}_sweep.
-- [end]
-- Locks: the messages, until the transaction ends. A crash before the commit finishes none of them.
create or replace function {queue}_complete(
    p_ids bigint[],
    p_token uuid,
    p_now timestamptz default null
) returns setof bigint language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    -- [ranges]
    declare
        p_sum bigint := (select sum(id) from unnest(p_ids) as ids (id));
        whole bigint;
        held bigint[];
    -- [end]
    begin
        -- [ranges]
        {sql range_complete number=cardinality(p_ids)}
        into whole;
        if whole is not null then
            return query select * from unnest(p_ids);
            return;
        end if;
        held := array(
            {sql range_hold}
        );
        if cardinality(held) > 0 then
            {sql range_mark ids=held};
            return query select * from unnest(held);
            if held @> p_ids then
                return;
            end if;
        end if;
        -- [end]
        -- [at_least_once]
        perform {queue}_unpack(p_token);
        -- [end]
        return query
            -- [at_most_once]
            {sql complete_at_most_once};
            -- [end]
            -- [keep at_least_once]
            {sql complete_keep};
            -- [end]
            -- [none]
            {sql complete_none};
            -- [end]
        -- [ranges]
        if cardinality(held) > 0 then
            return;
        end if;
        -- [end]
        if not found and cardinality(p_ids) > 0 then
            raise exception using errcode = 'TQ003', message = 'The lease on ' || array_to_string(p_ids[:5], ', ')
                || ' is lost, so nothing was completed.',
                hint = 'It expired, or the message was finished before: make the lease longer than the work.';
        end if;
        -- [grouped]
        if now() = statement_timestamp() then
            perform {queue}_promote(1000, p_now);
        end if;
        -- [end]
    end;
    $$;
revoke all on function {queue}_complete from public;
