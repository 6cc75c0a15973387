-- Procedures that claim and take.

-- name: claim
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
        within boolean := {is_within};
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
            -- [at_most_once in_order]
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
            -- [at_least_once fair unlimited]
                        {sql claim starts=ring_starts above=ring_above ends=ring_ends}
            -- [fair limited or at_most_once fair]
                        select * from {queue}_claim_turn(p_n, p_consumer, p_lease, p_token, p_now, served)
            -- [fair]
                    {in_turns}
                get diagnostics claimed = row_count;
                p_n := p_n - claimed;
                exit when p_n <= 0 or claimed = 0;
            end loop;
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

-- name: claim_turn
-- {queue}_claim_turn: one claim of a fair queue, for {queue}_claim: a part of a round, each message with the slot of
-- its group. A function, because a statement with limits, or one that moves messages to the history, cannot be a part
-- of another one.
create or replace function {queue}_claim_turn(
    p_n integer, p_consumer text, p_lease float8, p_token uuid, p_now timestamptz, served bigint
) returns table (
    {claimed_types}, slot bigint
) language plpgsql as $$
    #variable_conflict use_column
    begin
        -- [at_least_once]
        return query
            {sql claim starts=ring_starts above=ring_above ends=ring_ends};
        -- [at_most_once]
        return query
            {sql take starts=ring_starts above=ring_above ends=ring_ends};
        -- [end]
    end;
    $$;

-- name: take_turn
-- {queue}_take_turn: one take of a fair queue, for {queue}_remove; see {queue}_claim_turn.
create or replace function {queue}_take_turn(
    p_n integer, p_consumer text, p_token uuid, p_now timestamptz, served bigint
) returns table (
    {claimed_types}, slot bigint
) language plpgsql as $$
    #variable_conflict use_column
    begin
        return query
            {sql take starts=ring_starts above=ring_above ends=ring_ends};
    end;
    $$;

-- name: pop
-- {queue}_pop: claim up to p_n ready messages, for consumers; in the order of the queue, each with the token that
-- finishes it.
-- [at_least_once]
-- The lease is of p_lease seconds (else {lease}); a consumer that does not finish a message by then has lost it.
-- [at_most_once]
-- They are in the history already, and are never delivered again; complete finishes them.
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
) language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
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
        {checked_seconds of=p_lease named=lease}
        -- [at_most_once]
        if p_lease is not null then
            raise exception using errcode = 'TQ001', message = 'A message delivered at most once has no lease.',
                hint = 'Leave the lease out.';
        end if;
        -- [end]
        p_consumer := coalesce(p_consumer, session_user);
        -- [subscription]
        -- A function cannot know whether it is in one; see {queue}_claim.
        if {is_within} then
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
            -- [fair]
            ; -- they come in the order of the turns
        -- [ranges]
        if not found then
            {sql range_claim.claim all_holes=true held=null number=null sum=null}
            into claimed;
            return query
                select message.*, p_token
                from (
                    {sql range_claim.read}
                ) as message;
        end if;
        -- [end]
    end;
    $$;

-- name: take
-- {queue}_take: remove up to p_n ready messages, for consumers; in the order of the queue. They are finished when the
-- transaction commits.
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too.
create or replace function {queue}_take(
    p_n integer default 1,
    p_consumer text default null,
    p_now timestamptz default null
) returns table (
    {claimed_types}
) language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    #variable_conflict use_column
    begin
        if p_n is null or p_n < 1 then
            raise exception using errcode = 'TQ001', message = 'n is ' || coalesce(cast(p_n as text), 'null') || '.',
                hint = 'Give a whole number from 1 on.';
        end if;
        return query
            select message.*
            from {queue}_remove(p_n, coalesce(p_consumer, session_user), null, p_now) as message
            -- [in_order]
            order by {order_by};
            -- [fair]
            ; -- they come in the order of the turns
            -- [end]
    end;
    $$;

-- name: look
-- {queue}_look: whether a pop may find a message now, for {queue}_wait. It sweeps as pop does: once a second for each
-- session. In a call that waits, the time of the statement is that of its start, so it gives the time of the clock.
-- Index: {table}__ready. Locks: the messages that it sweeps, until the transaction ends.
create or replace function {queue}_look() returns boolean
language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    declare
        p_now timestamptz := clock_timestamp();
        p_low_water bigint := 0;
        last_sweep float8 := nullif(current_setting('tablequeue.{table}', true), '');
    begin
        if last_sweep is null or extract(epoch from p_now) >= last_sweep + 1 then
            perform {queue}_sweep(0, 1000, p_now);
        end if;
        return exists (select from {queue} where {claimable});
    end;
    $$;

-- name: wait
-- {queue}_wait: return when a pop may find a message, or after p_seconds. For a consumer with an empty queue: call it
-- in autocommit, and then pop. It begins with a pause, so a queue that is at a limit costs no more than an empty one.
-- A procedure, because a function cannot commit: each look is a transaction, and each pause, of a quarter of a second,
-- is one too, without locks. In a transaction of the caller's the first commit is refused (2D000).
-- It runs with the rights of its caller, because no other procedure may commit.
create or replace procedure {queue}_wait(p_seconds float8 default 20) language plpgsql as $$
    declare
        ends timestamptz;
        ready boolean := false;
    begin
        {checked_seconds of=p_seconds named=seconds}
        ends := clock_timestamp() + p_seconds * interval '1 second';
        while not ready and clock_timestamp() < ends loop
            commit;
            perform pg_sleep(least(0.25, greatest(0, extract(epoch from ends - clock_timestamp()))));
            commit;
            ready := {queue}_look();
        end loop;
    end;
    $$;
