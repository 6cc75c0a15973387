-- {queue}_complete: complete the messages of p_ids that p_token holds, for consumers; returns their ids.
-- [results]
-- p_result is kept as the result of each of them.
-- [end]
-- Error TQ003 if it holds none of them: an error undoes the statement, so it cannot be raised for some of them.
-- [grouped]
-- The next messages of their groups become ready; in a transaction of the caller's by the next pop after its commit
-- that finds too little: see {queue}_sweep.
-- [end]
-- Locks: the messages, until the transaction ends. A crash before the commit finishes none of them.
create or replace function {queue}_complete(
    p_ids bigint[],
    p_token uuid,
    p_now timestamptz default null,
    p_result json default null
) returns setof bigint language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    -- [ranges]
    declare
        p_sum bigint := (select sum(id) from unnest(p_ids) as ids (id));
        whole bigint;
        held bigint[];
    -- [end]
    -- [results]
    declare
        held bigint[];
    -- [end]
    begin
        -- [not results]
        if p_result is not null then
            raise exception using errcode = 'TQ001', message = 'This queue keeps no results.',
                hint = 'Leave the result out, or use a queue with results.';
        end if;
        -- [end]
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
        -- [results at_least_once]
        held := array(
            select id from {queue} where id = any(p_ids) and token = p_token for update
        );
        -- [end]
        -- [results at_most_once]
        held := array(
            select id from {history} where id = any(p_ids) and token = p_token and finished_at is null for update
        );
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
        -- [results]
        insert into {results} (id, result)
        select id, p_result from unnest(held) as done (id) where p_result is not null;
        -- [end]
        -- [grouped]
        if now() = statement_timestamp() then
            perform {queue}_promote(1000, p_now);
        end if;
        -- [end]
    end;
    $$;
revoke all on function {queue}_complete from public;
