-- {queue}_extend: the lease on message p_id, held under p_token, ends p_seconds (else {lease}) from now; for consumers.
-- Returns that end. Error TQ003 if the lease is lost. Locks: the message, until the transaction ends.
create or replace function {queue}_extend(
    p_id bigint,
    p_token uuid,
    p_seconds float8 default null,
    p_now timestamptz default null
) returns timestamptz language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    declare
        p_lease float8 := coalesce(p_seconds, {lease});
        extended bigint;
        lease_end timestamptz;
    begin
        if not p_lease between 0 and {longest} then
            raise exception using errcode = 'TQ001', message = 'seconds is ' || p_lease || '.',
                hint = 'Give seconds, from 0 to 100 years.';
        end if;
        -- [ranges]
        {sql range_extend ids=array[p_id]}
        into extended, lease_end;
        if lease_end is not null then
            return lease_end;
        end if;
        -- [end]
        perform {queue}_unpack(p_token);
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
revoke all on function {queue}_extend from public;
