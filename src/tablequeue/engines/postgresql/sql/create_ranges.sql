-- The ranges that a subscription has claimed, in the order of the claims: its history. The next claim begins after the
-- last one. The first row has no messages: it says where the subscription begins, and so does that of a seek.
-- A range with a lease_until is in progress. `left_ids` are the messages that have left it, the last at finished_at:
-- completed before the others; or set apart, and in `apart_ids`, too. A range that is finished has no left_ids.
-- When its lease expires, the messages that have not left it are set apart, without being in `apart_ids`.
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
-- Claim the next range of up to `n` messages: one row for all of them. If too few have offsets, it sequences first;
-- if none has, it waits for another session that does it just now.
-- Locks: an advisory one of the subscription, until the transaction ends. Each statement sees what was committed before
-- it began, so the lock comes before the look at the last range.
-- With `held` it first completes the range under that token, of so many messages with this sum of ids. If it is not
-- held, nothing is claimed, and a row of nulls is returned.
-- The commit of a transaction that only claims need not be on the disk: if the server crashes before, the range is
-- claimed again, and the token of the lost claim finishes nothing.
create function {claim_range}(
    n bigint, as_token uuid, who text, lease float8, at timestamptz, all_holes boolean,
    held uuid, held_messages integer, held_sum bigint
)
    returns table (
        {claimed_types}
    ) language plpgsql set jit = off as $$
    #variable_conflict use_column
    declare
        begins bigint;
        ends bigint;
    begin
        if held is null and pg_current_xact_id_if_assigned() is null then
            perform set_config('synchronous_commit', 'off', true);
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
                return next;
                return;
            end if;
        end if;
        perform pg_advisory_xact_lock({range_lock});
        select greatest(last_offset + 1, (select min(first_offset) + 1 from {runs}))
        into begins from {ranges} order by id desc limit 1;
        select least(first_offset + last_id - first_id, begins + n - 1)
        into ends from {runs} order by first_offset desc limit 1;
        if ends < begins then
            return;
        end if;
        return query
            with pieces as materialized (
                select
                    first_offset, first_id + greatest(begins - first_offset, 0) as low,
                    least(last_id, first_id + ends - first_offset) as high
                from {runs}
                where first_offset >= (select max(first_offset) from {runs} where first_offset <= begins)
                    and first_offset <= ends
            ), claimed as (
                insert into {ranges} (
                    first_offset, last_offset, messages, ids_sum, token, consumer, popped_at, lease_until
                )
                select
                    begins, ends, ends - begins + 1, sum((low + high) * (high - low + 1) / 2), as_token, who, at,
                    at + lease * interval '1 second'
                from pieces
                returning popped_at, lease_until
            )
            select
                log.id, log.payload, log.headers, 1, log.pushed_at, claimed.popped_at, claimed.lease_until, 0,
                log.group_key, cast(null as text), cast(null as timestamptz)
            from pieces
            cross join claimed
            join {log} as log on log.id between low and high
            order by first_offset, log.id;
    end;
    $$;
