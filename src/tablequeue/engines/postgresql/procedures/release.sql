-- {queue}_release: release the messages of p_ids that p_token holds, unworked, for consumers; returns their ids. They
-- are ready after p_delay seconds, and the attempt is not counted; those that were told to stop end.
-- Error TQ003 if it holds none of them.
-- Locks: the messages, until the transaction ends. A crash before the commit releases none of them.
create or replace function {queue}_release(
    p_ids bigint[],
    p_token uuid,
    p_delay float8 default 0,
    p_now timestamptz default null
) returns setof bigint language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    declare
        released bigint;
        ended bigint;
        was_in_run boolean;
        waited_for boolean;
        -- [ranges]
        held bigint[];
        -- [end]
    begin
        if p_delay is null or not p_delay between 0 and {longest} then
            raise exception using errcode = 'TQ001',
                message = 'delay is ' || coalesce(cast(p_delay as text), 'null') || '.',
                hint = 'Give seconds, from 0 to 100 years.';
        end if;
        -- [ranges]
        held := array(
            {sql range_hold}
        );
        if cardinality(held) > 0 then
            perform {queue}_set_apart(held, p_token, 0, p_delay, null, p_now);
            return query select * from unnest(held);
            if held @> p_ids then
                return;
            end if;
            released := held[1];
        end if;
        -- [end]
        perform {queue}_unpack(p_token);
        for released, was_in_run, waited_for in
            {sql release within=true}
        loop
            return next released;
        end loop;
        -- Told to stop: they end.
        for ended in
            {sql cancel_held error=null}
        loop
            return next ended;
        end loop;
        released := coalesce(released, ended);
        if released is null and cardinality(p_ids) > 0 then
            raise exception using errcode = 'TQ003', message = 'The lease on ' || array_to_string(p_ids[:5], ', ')
                || ' is lost, so nothing was released.',
                hint = 'It expired, or the message was finished before: make the lease longer than the work.';
        end if;
        perform {queue}_notify(waited_for);
    end;
    $$;
revoke all on function {queue}_release from public;
