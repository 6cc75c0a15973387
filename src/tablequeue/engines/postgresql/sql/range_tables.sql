-- The tables and functions of a subscription's ranges of the log.

-- name: create_ranges
-- A range with a lease_until is in progress. `left_ids` are the messages that have left it, the last at finished_at:
-- completed before the others; or detached, and in `apart_ids`, too. A range that is finished has no left_ids.
-- When its lease expires, the messages that have not left it are detached, without being in `apart_ids`.
-- Runs in one transaction: a crash leaves nothing.
create table {ranges} (
    id bigint generated always as identity (sequence name {ranges}_ids),
    first_offset bigint not null,
    last_offset bigint not null,
    messages integer not null,
    ids_sum bigint not null,
    token uuid,
    consumer text,
    popped_at timestamptz not null,
    lease_until timestamptz,
    finished_at timestamptz,
    left_ids bigint[],
    apart_ids bigint[],
    constraint {table}__range primary key (id)
);
create index {table}__token on {ranges} (token) where lease_until is not null;
create index {table}__lease on {ranges} (lease_until) where lease_until is not null;
insert into {ranges} (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (
    cast(:start as bigint), cast(:start as bigint) - 1, 0, 0, {now}, {now}
);

-- name: create_range_functions
-- The functions of a subscription.
-- Runs in one transaction with create_ranges: a crash leaves nothing.
-- Claim the next range of up to `n` messages: one row for all of them. If too few have offsets, it sequences first; if
-- none has, it waits for another session that does it just now. While claims are paused it claims none.
-- With `held` it first completes the range under that token, of so many messages with this sum of ids. If it is not
-- held, nothing is claimed. Returns whether it was; true without `held`.
-- Locks: an advisory one of the subscription, until the transaction ends. Each statement sees what was committed before
-- it began, so the lock comes before the look at the last range. All other consumers wait for it. So it returns no
-- message, and {read_range} reads them when the transaction has ended: a client may take for ever to receive them.
-- The commit of a transaction that only claims need not be on the disk: if the server crashes before, the range is
-- claimed again, and the token of the lost claim finishes nothing.
create function {claim_range}(
    n bigint, as_token uuid, who text, lease float8, at timestamptz, all_holes boolean,
    held uuid, held_messages integer, held_sum bigint
)
    returns boolean language plpgsql set jit = off as $$
    declare
        begins bigint;
        ends bigint;
    begin
        if held is null and pg_current_xact_id_if_assigned() is null then
            perform set_config('synchronous_commit', 'off', true);
        end if;
        if exists (select from {paused} where name = '{table}' and until > at) then
            n = 0;
        end if;
        select greatest(last_offset + 1, (select min(first_offset) + 1 from {runs}))
        into begins from {ranges} order by id desc limit 1;
        select first_offset + last_id - first_id into ends from {runs} order by first_offset desc limit 1;
        if ends - begins + 1 < n then
            perform {log}__sequence(all_holes, ends < begins);
        end if;
        if held is not null then
            update {ranges}
            set finished_at = at, lease_until = null
            where token = held and lease_until is not null
                and messages = held_messages and ids_sum = held_sum and left_ids is null;
            if not found then
                return false;
            end if;
        end if;
        perform pg_advisory_xact_lock({range_lock});
        select greatest(last_offset + 1, (select min(first_offset) + 1 from {runs}))
        into begins from {ranges} order by id desc limit 1;
        select least(first_offset + last_id - first_id, begins + n - 1)
        into ends from {runs} order by first_offset desc limit 1;
        if ends >= begins then
            insert into {ranges} (
                first_offset, last_offset, messages, ids_sum, token, consumer, popped_at, lease_until
            )
            select
                begins, ends, ends - begins + 1, sum((low + high) * (high - low + 1) / 2), as_token, who, at,
                at + lease * interval '1 second'
            from (
                select
                    first_id + greatest(begins - first_offset, 0) as low,
                    least(last_id, first_id + ends - first_offset) as high
                from {runs}
                where first_offset >= (select max(first_offset) from {runs} where first_offset <= begins)
                    and first_offset <= ends
            ) as pieces;
        end if;
        return true;
    end;
    $$;
-- The messages of the range under `as_token`, in the order of their offsets. Locks: none.
create or replace function {read_range}(as_token uuid)
    returns table (
        {claimed_types without errors}
    ) language plpgsql set jit = off as $$
    #variable_conflict use_column
    begin
        return query
            with pieces as materialized (
                select
                    popped_at, lease_until, run.first_offset,
                    run.first_id + greatest(held.first_offset - run.first_offset, 0) as low,
                    least(run.last_id, run.first_id + held.last_offset - run.first_offset) as high
                from {ranges} as held
                join {runs} as run
                    on run.first_offset <= held.last_offset and run.first_offset >= (
                        select max(first_offset) from {runs} where first_offset <= held.first_offset
                    )
                where token = as_token and lease_until is not null
            )
            select
                log.id, log.payload, log.headers, 1, log.pushed_at, popped_at, lease_until, 0, log.group_key,
                cast(null as text), cast(null as timestamptz)
            from pieces
            join {log} as log on log.id between low and high
            order by first_offset, log.id;
    end;
    $$;
-- Move the next `n` messages of the log to the queue of an ordered subscription, and the position past them. It
-- sequences first. A message without a group, which an older log may have, is in the group without a name. Returns the
-- number. Nothing is moved if another session does it just now.
-- Indexes: the primary keys. Locks: an advisory one of the subscription, until the transaction ends, so it is one call:
-- no client that is suspended holds it. A crash leaves all or nothing.
create or replace function {pump_range}(n integer, at timestamptz) returns integer
    language plpgsql set jit = off as $$
    #variable_conflict use_column
    declare
        number integer;
    begin
        perform {log}__sequence(true, true);
        if not pg_try_advisory_xact_lock({range_lock}) then
            return 0;
        end if;
        with bounds as (
            select
                greatest(
                    (select last_offset + 1 from {ranges} order by id desc limit 1),
                    (select min(first_offset) + 1 from {runs})
                ) as begins,
                (select first_offset + last_id - first_id from {runs} order by first_offset desc limit 1) as ends
        ), moved as (
            insert into {ranges} (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
            select begins, least(begins + n - 1, ends), 0, 0, at, at from bounds where begins <= ends
            returning first_offset, last_offset
        ), messages as materialized (
            select log.*
            from moved
            join {runs} as run
                on run.first_offset >= (select max(first_offset) from {runs} where first_offset <= moved.first_offset)
                    and run.first_offset <= moved.last_offset
            join {log} as log on log.id
                between run.first_id + greatest(moved.first_offset - run.first_offset, 0)
                and least(run.last_id, run.first_id + moved.last_offset - run.first_offset)
        ), there as (
            delete from {history} where id = any(array(select id from messages))
        )
        insert into {queue} (id, state, pushed_at, group_key, producer, headers, payload)
        select id, '{pushed_ready}', pushed_at, coalesce(group_key, ''), producer, headers, payload from messages
        on conflict (id) do nothing;
        get diagnostics number = row_count;
        return number;
    end;
    $$;

-- name: drop_ranges
-- In one transaction with its queue: a crash leaves all or nothing.
drop function if exists {claim_range};
drop function if exists {read_range};
drop function if exists {pump_range};
drop table if exists {ranges};
