-- {queue}_fail: fail the attempt on message p_id, held under p_token, for consumers.
-- [at_least_once]
-- It is tried again after p_retry_in seconds, or else by the backoff of the queue; after {max_attempts} attempts it is
-- a dead letter. Returns its new state: ready, scheduled or dead; or cancelled, if it was told to stop.
-- [end]
-- [at_most_once]
-- It stays lost, with the error. Returns 'lost'.
-- [end]
-- Error TQ003 if the lease is lost. Locks: the message, until the transaction ends. A crash before the commit leaves
-- the message in progress.
create or replace function {queue}_fail(
    p_id bigint,
    p_token uuid,
    p_error text default '',
    p_retry_in float8 default null,
    p_now timestamptz default null
) returns text language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    declare
        p_delay float8 := p_retry_in;
        failed bigint;
        new_state text;
        waited_for boolean;
        -- [at_least_once]
        ended bigint;
        -- [end]
        -- [ranges]
        held bigint[];
        -- [end]
    begin
        if not p_delay between 0 and {longest} then
            raise exception using errcode = 'TQ001', message = 'retry_in is ' || p_delay || '.',
                hint = 'Give seconds, from 0 to 100 years.';
        end if;
        p_error := coalesce(p_error, '');
        if char_length(p_error) > {longest_error} then
            p_error := concat(
                left(p_error, {error_ends}), chr(10), '[... ', char_length(p_error) - 2 * {error_ends},
                ' characters left out ...]', chr(10), right(p_error, {error_ends})
            );
        end if;
        -- [ranges]
        held := array(
            {sql range_hold ids=array[p_id]}
        );
        if cardinality(held) > 0 then
            p_delay := coalesce(
                p_delay,
                least(cast({cap} as float8), cast({base} as float8)) * (1 - cast({jitter} as float8) * random())
            );
            perform {queue}_set_apart(held, p_token, 1, p_delay, p_error, p_now);
            return case when {max_attempts} <= 1 then 'dead' when p_delay > 0 then 'scheduled' else 'ready' end;
        end if;
        -- [end]
        -- [at_least_once]
        perform {queue}_unpack(p_token);
        if p_delay is null then
            select least(
                cast({cap} as float8),
                cast({base} as float8) * power(cast({factor} as float8), least(greatest(attempts - 1, 0), {steps}))
            ) * (1 - cast({jitter} as float8) * random())
            into p_delay
            from {queue} where id = p_id and token = p_token;
        end if;
        {sql fail ids=array[p_id] delays=array[p_delay] max_attempts=max_attempts within=true}
        into failed, new_state, waited_for;
        if new_state is null then
            -- Told to stop: it ends.
            {sql cancel_held ids=array[p_id]}
            into ended;
            new_state := case when ended is not null then 'cancelled' end;
        end if;
        -- [end]
        -- [at_most_once]
        {sql fail_at_most_once ids=array[p_id]}
        into failed, new_state;
        -- [end]
        if new_state is null then
            raise exception using errcode = 'TQ003',
                message = 'The lease on ' || p_id || ' is lost, so it was not failed.',
                hint = 'It expired, or the message was finished before: make the lease longer than the work.';
        end if;
        -- [dead_letter_to]
        if new_state = 'dead' then
            {sql move_dead ids=array[p_id] origin=origin};
        end if;
        -- [end]
        -- [at_least_once]
        perform {queue}_notify(waited_for);
        -- [end]
        -- [grouped]
        if new_state in ('dead', 'cancelled', 'blocked') and now() = statement_timestamp() then
            perform {queue}_promote(1000, p_now);
        end if;
        -- [end]
        return new_state;
    end;
    $$;
revoke all on function {queue}_fail from public;
