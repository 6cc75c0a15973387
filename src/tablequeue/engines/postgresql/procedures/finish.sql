-- Procedures that finish messages.

-- name: complete
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
) returns setof bigint language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    -- [ranges]
    declare
        p_sum bigint := (select sum(id) from unnest(p_ids) as ids (id));
        whole bigint;
        held bigint[];
    -- [results]
    declare
        held bigint[];
    -- [grouped]
    declare
        within boolean := {is_within};
    -- [end]
    begin
        -- [not results]
        if p_result is not null then
            raise exception using errcode = 'TQ001', message = 'This queue keeps no results.',
                hint = 'Leave the result out, or use a queue with results.';
        end if;
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
        -- [results at_least_once]
        held := array(
            select id from {queue} where id = any(p_ids) and token = p_token for update
        );
        -- [results at_most_once]
        held := array(
            select id from {history} where id = any(p_ids) and token = p_token and finished_at is null for update
        );
        -- [end]
        return query
        -- [at_most_once]
            {sql complete_at_most_once};
        -- [at_least_once]
            {sql complete};
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
        -- [grouped]
        if not within then
            perform {queue}_promote(1000, p_now);
        end if;
        -- [end]
    end;
    $$;

-- name: fail
-- {queue}_fail: fail the attempt on message p_id, held under p_token, for consumers.
-- [at_least_once]
-- It is tried again after p_retry_in seconds, or else by the backoff of the queue; after {max_attempts} attempts it is
-- a dead letter. Returns its new state: ready, scheduled or dead; or cancelled, if it was told to stop.
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
) returns text language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    declare
        p_delay float8 := p_retry_in;
        failed bigint;
        new_state text;
        waited_for boolean;
        -- [at_least_once]
        ended bigint;
        -- [grouped]
        within boolean := {is_within};
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
        -- [at_least_once]
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
        -- [at_least_once]
        perform {queue}_notify(waited_for);
        -- [grouped]
        if new_state in ('dead', 'cancelled', 'blocked') and not within then
            perform {queue}_promote(1000, p_now);
        end if;
        -- [end]
        return new_state;
    end;
    $$;

-- name: release
-- {queue}_release: release the messages of p_ids that p_token holds, unworked, for consumers; returns their ids. They
-- are ready after p_delay seconds, and the attempt is not counted; those that were told to stop end.
-- Error TQ003 if it holds none of them.
-- Locks: the messages, until the transaction ends. A crash before the commit releases none of them.
create or replace function {queue}_release(
    p_ids bigint[],
    p_token uuid,
    p_delay float8 default 0,
    p_now timestamptz default null
) returns setof bigint language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    declare
        released bigint;
        ended bigint;
        was_in_run boolean;
        waited_for boolean;
        -- [ranges]
        held bigint[];
        -- [end]
    begin
        {checked_seconds of=p_delay named=delay}
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

-- name: extend
-- {queue}_extend: the lease on message p_id, held under p_token, ends p_seconds (else {lease}) from now; for consumers.
-- Returns that end. Error TQ003 if the lease is lost. Locks: the message, until the transaction ends.
create or replace function {queue}_extend(
    p_id bigint,
    p_token uuid,
    p_seconds float8 default null,
    p_now timestamptz default null
) returns timestamptz language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    declare
        p_lease float8 := coalesce(p_seconds, {lease});
        extended bigint;
        lease_end timestamptz;
    begin
        {checked_seconds of=p_lease named=seconds}
        -- [ranges]
        {sql range_extend ids=array[p_id]}
        into extended, lease_end;
        if lease_end is not null then
            return lease_end;
        end if;
        -- [end]
        {sql extend ids=array[p_id]}
        into extended, lease_end;
        if lease_end is null then
            raise exception using errcode = 'TQ003',
                message = 'The lease on ' || p_id || ' is lost, so it was not extended.',
                hint = 'It expired, or the message was finished before: make the lease longer than the work.';
        end if;
        return lease_end;
    end;
    $$;
