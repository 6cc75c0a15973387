-- {queue}_pop: claim up to p_n ready messages, for consumers; in the order of the queue, each with the token that
-- finishes it.
-- [at_least_once]
-- The lease is of p_lease seconds (else {lease}); a consumer that does not finish a message by then has lost it.
-- [end]
-- [at_most_once]
-- They are in the history already, and are never delivered again; complete finishes them.
-- [end]
-- [subscription]
-- Not in a transaction of the caller's: a claim would hold up all other consumers.
-- [end]
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A consumer that dies leaves them in progress; a later pop returns them when the lease has expired.
create or replace function {queue}_pop(
    p_n integer default 1,
    p_consumer text default null,
    p_lease float8 default null,
    p_now timestamptz default null
) returns table (
    {claimed_types},
    token uuid
) language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    #variable_conflict use_column
    declare
        p_token uuid := gen_random_uuid();
        -- [ranges]
        claimed boolean;
        -- [end]
    begin
        if p_n is null or p_n < 1 then
            raise exception using errcode = 'TQ001', message = 'n is ' || coalesce(cast(p_n as text), 'null') || '.',
                hint = 'Give a whole number from 1 on.';
        end if;
        -- [at_least_once]
        p_lease := coalesce(p_lease, {lease});
        if not p_lease between 0 and {longest} then
            raise exception using errcode = 'TQ001', message = 'lease is ' || p_lease || '.',
                hint = 'Give seconds, from 0 to 100 years.';
        end if;
        -- [end]
        -- [at_most_once]
        if p_lease is not null then
            raise exception using errcode = 'TQ001', message = 'A message delivered at most once has no lease.',
                hint = 'Leave the lease out.';
        end if;
        -- [end]
        p_consumer := coalesce(p_consumer, session_user);
        -- [subscription]
        -- A function cannot know whether it is in one; see {queue}_claim.
        if txid_current_if_assigned() is not null or now() < statement_timestamp() - interval '1 s' then
            raise exception using errcode = 'TQ001',
                message = 'A claim of a subscription cannot be a part of a transaction.',
                hint = 'Pop in autocommit, then complete in your transaction.';
        end if;
        perform {queue}_move_apart(p_now);
        -- [end]
        return query
            select message.*, p_token
            from {queue}_claim(p_n, p_consumer, p_lease, p_token, p_now) as message
            -- [in_order]
            order by {order_by};
            -- [end]
            -- [fair]
            ; -- they come in the order of the turns
            -- [end]
        -- [ranges]
        if not found then
            {sql range_claim/1 all_holes=true held=null number=null sum=null}
            into claimed;
            return query
                select message.*, p_token
                from (
                    {sql range_claim/2}
                ) as message;
        end if;
        -- [end]
    end;
    $$;
revoke all on function {queue}_pop from public;
