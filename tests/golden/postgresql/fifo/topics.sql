-- create_range_functions
-- The functions of a subscription.
-- Runs in one transaction with create_ranges: a crash leaves nothing.
-- Claim the next range of up to `n` messages: one row for all of them. If too few have offsets, it sequences first; if
-- none has, it waits for another session that does it just now. While claims are paused it claims none.
-- With `held` it first completes the range under that token, of so many messages with this sum of ids. If it is not
-- held, nothing is claimed. Returns whether it was; true without `held`.
-- Locks: an advisory one of the subscription, until the transaction ends. Each statement sees what was committed before
-- it began, so the lock comes before the look at the last range. All other consumers wait for it. So it returns no
-- message, and tq_events__s1__ranges_read reads them when the transaction has ended: a client may take for ever to receive them.
-- The commit of a transaction that only claims need not be on the disk: if the server crashes before, the range is
-- claimed again, and the token of the lost claim finishes nothing.
create function tq_events__s1__ranges_claim(
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
        if exists (select from tq__paused where name = 'tq_events__s1' and until > at) then
            n = 0;
        end if;
        select greatest(last_offset + 1, (select min(first_offset) + 1 from tq_events__runs))
        into begins from tq_events__s1__ranges order by id desc limit 1;
        select first_offset + last_id - first_id into ends from tq_events__runs order by first_offset desc limit 1;
        if ends - begins + 1 < n then
            perform tq_events__sequence(all_holes, ends < begins);
        end if;
        if held is not null then
            update tq_events__s1__ranges
            set finished_at = at, lease_until = null
            where token = held and lease_until is not null
                and messages = held_messages and ids_sum = held_sum and left_ids is null;
            if not found then
                return false;
            end if;
        end if;
        perform pg_advisory_xact_lock(hashoidextended(cast('tq_events__s1__ranges' as regclass), 8318836325));
        select greatest(last_offset + 1, (select min(first_offset) + 1 from tq_events__runs))
        into begins from tq_events__s1__ranges order by id desc limit 1;
        select least(first_offset + last_id - first_id, begins + n - 1)
        into ends from tq_events__runs order by first_offset desc limit 1;
        if ends >= begins then
            insert into tq_events__s1__ranges (
                first_offset, last_offset, messages, ids_sum, token, consumer, popped_at, lease_until
            )
            select
                begins, ends, ends - begins + 1, sum((low + high) * (high - low + 1) / 2), as_token, who, at,
                at + lease * interval '1 second'
            from (
                select
                    first_id + greatest(begins - first_offset, 0) as low,
                    least(last_id, first_id + ends - first_offset) as high
                from tq_events__runs
                where first_offset >= (select max(first_offset) from tq_events__runs where first_offset <= begins)
                    and first_offset <= ends
            ) as pieces;
        end if;
        return true;
    end;
    $$;
-- The messages of the range under `as_token`, in the order of their offsets. Locks: none.
create or replace function tq_events__s1__ranges_read(as_token uuid)
    returns table (
        id bigint, payload json, headers json, attempts integer, pushed_at timestamptz, popped_at timestamptz,
        lease_until timestamptz, priority integer, group_key text, dedup_key text, due_at timestamptz
    ) language plpgsql set jit = off as $$
    #variable_conflict use_column
    begin
        return query
            with pieces as materialized (
                select
                    popped_at, lease_until, run.first_offset,
                    run.first_id + greatest(held.first_offset - run.first_offset, 0) as low,
                    least(run.last_id, run.first_id + held.last_offset - run.first_offset) as high
                from tq_events__s1__ranges as held
                join tq_events__runs as run
                    on run.first_offset <= held.last_offset and run.first_offset >= (
                        select max(first_offset) from tq_events__runs where first_offset <= held.first_offset
                    )
                where token = as_token and lease_until is not null
            )
            select
                log.id, log.payload, log.headers, 1, log.pushed_at, popped_at, lease_until, 0, log.group_key,
                cast(null as text), cast(null as timestamptz)
            from pieces
            join tq_events as log on log.id between low and high
            order by first_offset, log.id;
    end;
    $$;
-- Move the next `n` messages of the log to the queue of an ordered subscription, and the position past them. It
-- sequences first. A message without a group, which an older log may have, is in the group without a name. Returns the
-- number. Nothing is moved if another session does it just now.
-- Indexes: the primary keys. Locks: an advisory one of the subscription, until the transaction ends, so it is one call:
-- no client that is suspended holds it. A crash leaves all or nothing.
create or replace function tq_events__s1__ranges_pump(n integer, at timestamptz) returns integer
    language plpgsql set jit = off as $$
    #variable_conflict use_column
    declare
        number integer;
    begin
        perform tq_events__sequence(true, true);
        if not pg_try_advisory_xact_lock(hashoidextended(cast('tq_events__s1__ranges' as regclass), 8318836325)) then
            return 0;
        end if;
        with bounds as (
            select
                greatest(
                    (select last_offset + 1 from tq_events__s1__ranges order by id desc limit 1),
                    (select min(first_offset) + 1 from tq_events__runs)
                ) as begins,
                (select first_offset + last_id - first_id from tq_events__runs order by first_offset desc limit 1) as ends
        ), moved as (
            insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
            select begins, least(begins + n - 1, ends), 0, 0, at, at from bounds where begins <= ends
            returning first_offset, last_offset
        ), messages as materialized (
            select log.*
            from moved
            join tq_events__runs as run
                on run.first_offset >= (select max(first_offset) from tq_events__runs where first_offset <= moved.first_offset)
                    and run.first_offset <= moved.last_offset
            join tq_events as log on log.id
                between run.first_id + greatest(moved.first_offset - run.first_offset, 0)
                and least(run.last_id, run.first_id + moved.last_offset - run.first_offset)
        ), there as (
            delete from tq_events__s1_history where id = any(array(select id from messages))
        )
        insert into tq_events__s1 (id, state, pushed_at, group_key, producer, headers, payload)
        select id, 'ready', pushed_at, coalesce(group_key, ''), producer, headers, payload from messages
        on conflict (id) do nothing;
        get diagnostics number = row_count;
        return number;
    end;
    $$;

-- create_ranges
-- The ranges that a subscription has claimed, in the order of the claims: its history. The next claim
-- begins after the last one. The first row has no messages: it says where the subscription begins, and so does that
-- of a seek.
-- A range with a lease_until is in progress. `left_ids` are the messages that have left it, the last at finished_at:
-- completed before the others; or detached, and in `apart_ids`, too. A range that is finished has no left_ids.
-- When its lease expires, the messages that have not left it are detached, without being in `apart_ids`.
-- Runs in one transaction: a crash leaves nothing.
create table tq_events__s1__ranges (
    id bigint generated always as identity (sequence name tq_events__s1__ranges_ids),
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
    constraint tq_events__s1__range primary key (id)
);
create index tq_events__s1__token on tq_events__s1__ranges (token) where lease_until is not null;
create index tq_events__s1__lease on tq_events__s1__ranges (lease_until) where lease_until is not null;
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (
    cast(:start as bigint), cast(:start as bigint) - 1, 0, 0, coalesce(cast(:now as timestamptz), statement_timestamp()), coalesce(cast(:now as timestamptz), statement_timestamp())
);

-- create_topic
-- The log of a topic. Its rows are never changed.
-- Ids are given before commits. So the offset of a message, which says when it became visible, is in the runs: a run is
-- ids without a gap that were all visible when a session looked, and an offset is first_offset + id - first_id. The run
-- with the lowest offset is the last message that was dropped; at first 0, which never was.
-- The holes are the ids between runs, each with a transaction id above those of all transactions that may still fill it
-- (null: not known yet). The default of the id gives the transaction its id first; nextval alone gives none.
-- Runs in one transaction: a crash leaves nothing.
create sequence tq_events__ids;
create table tq_events (
    id bigint not null default (
        cast(cast(pg_current_xact_id() as text) as bigint) * 0 + nextval('tq_events__ids')
    ),
    pushed_at timestamptz not null default statement_timestamp(),
    producer text,
    group_key text,
    headers json,
    payload json not null,
    constraint tq_events__id primary key (id)
)
;
alter sequence tq_events__ids owned by tq_events.id;
create table tq_events__runs (
    first_offset bigint not null,
    first_id bigint not null,
    last_id bigint not null,
    constraint tq_events__first_offset primary key (first_offset)
);
create index tq_events__last_id on tq_events__runs (last_id);
insert into tq_events__runs (first_offset, first_id, last_id) values (0, 0, 0);
create table tq_events__holes (
    first_id bigint not null,
    last_id bigint not null,
    bound xid8,
    constraint tq_events__hole primary key (first_id)
);

-- create_topic_functions
-- The functions of a topic.
-- Runs in one transaction with create_topic: a crash leaves nothing.
-- Give the messages that have become visible their offsets: those above the last run, and those in holes. `all_holes`:
-- look at all holes, not only at the last hundred. If another session does it just now, wait if `patient`, else do
-- nothing.
-- Locks: an advisory one, until the transaction ends; so never in a transaction of a caller. Each statement sees what
-- was committed before it began, so the lock comes before the look.
-- A session keeps the plans of its first call, when the log may be empty. Without `enable_seqscan = off` they read the
-- whole log, at each call.
-- Where there is neither a hole nor a gap, the new messages are one run, and it is enough to count them. Else one
-- statement looks at all, and gives offsets by id: what is pushed after a commit comes after what was committed.
-- A hole is forgotten when no transaction can fill it any more: all whose ids are below its bound had ended before the
-- look. The bound is our own transaction id, if it is given after the hole was seen: the xmax of a snapshot may be
-- below that of a transaction in flight. A bound that no transaction has reached yet is of another cluster, from which
-- the topic was restored.
create or replace function tq_events__sequence(all_holes boolean, patient boolean) returns void
    language plpgsql set jit = off set enable_seqscan = off as $$
    declare
        clean boolean = pg_current_xact_id_if_assigned() is null;
        horizon xid8;
        next bigint;
        last bigint;
        fresh record;
        recent bigint;
    begin
        if patient then
            perform pg_advisory_xact_lock(hashoidextended(cast('tq_events' as regclass), 8318836324));
        elsif not pg_try_advisory_xact_lock(hashoidextended(cast('tq_events' as regclass), 8318836324)) then
            return;
        end if;
        select first_offset + last_id - first_id + 1 into next from tq_events__runs order by first_offset desc limit 1;
        last = greatest(
            (select last_id from tq_events__runs order by last_id desc limit 1),
            (select last_id from tq_events__holes order by first_id desc limit 1),
            (select last_id from tq_events__parts order by first_id desc limit 1)
        );
        if not exists (select from tq_events__holes) then
            select count(*) as messages, min(id) as low, max(id) as high
            into fresh
            from (select id from tq_events where id > last order by id limit 100000) as visible;
            if fresh.messages = 0 then
                return;
            elsif fresh.low = last + 1 and fresh.high - fresh.low + 1 = fresh.messages then
                insert into tq_events__runs (first_offset, first_id, last_id) values (next, fresh.low, fresh.high);
                return;
            end if;
        end if;
        recent = case when all_holes then 0 else
            coalesce((select first_id from tq_events__holes order by first_id desc offset 99 limit 1), 0)
        end;
        horizon = pg_snapshot_xmin(pg_current_snapshot());
        with filled as (
            delete from tq_events__holes as hole
            where first_id >= recent
                and exists (select from tq_events where id between hole.first_id and hole.last_id)
            returning first_id, last_id, bound
        ), visible as (
            select first_id, last_id, bound, id from filled join tq_events on id between first_id and last_id
            union all
            select last + 1, null, null, id
            from (select id from tq_events where id > last order by id limit 100000) as fresh
        ), islands as materialized (
            select first_id, last_id, bound, min(id) as low, max(id) as high
            from (select *, id - row_number() over (order by id) as island from visible) as numbered
            group by first_id, last_id, bound, island
        ), added_runs as (
            insert into tq_events__runs (first_offset, first_id, last_id)
            select next + sum(high - low + 1) over (order by low) - (high - low + 1), low, high from islands
        )
        insert into tq_events__holes (first_id, last_id, bound)
        select low, high, coalesce(bound, case when clean then pg_current_xact_id() end)
        from (
            select coalesce(lag(high) over hole + 1, first_id) as low, low - 1 as high, bound
            from islands
            window hole as (partition by first_id order by low)
            union all
            select max(high) + 1, last_id, bound from islands group by first_id, last_id, bound
        ) as rests
        where low <= high;
        if clean and exists (
            select from tq_events__holes
            where bound is null or (
                bound >= pg_snapshot_xmax(pg_current_snapshot())
                and bound is distinct from pg_current_xact_id_if_assigned()
            )
        ) then
            update tq_events__holes set bound = pg_current_xact_id()
            where bound is null or bound >= pg_snapshot_xmax(pg_current_snapshot());
        end if;
        delete from tq_events__holes where first_id >= recent and bound <= horizon;
    end;
    $$;
-- Sequence all that was visible before the call. The caller's transaction has the lock until it ends.
create or replace function tq_events__sequence_all(all_holes boolean) returns void
    language plpgsql set enable_seqscan = off as $$
    declare
        more boolean = true;
    begin
        while more loop
            more = exists (select from tq_events where id > greatest(
                (select last_id from tq_events__runs order by last_id desc limit 1),
                (select last_id from tq_events__holes order by first_id desc limit 1),
                (select last_id from tq_events__parts order by first_id desc limit 1)
            ) offset 99999);
            perform tq_events__sequence(all_holes, true);
        end loop;
    end;
    $$;
-- Reserve `n` ids for messages of a bulk write, `place` being that of the first one in its part; returns them. Nobody
-- sees messages that get these ids, until the write is published. A crash leaves the ids reserved.
-- The ids between that other transactions have got, or will get, are a hole from now on. All that had become visible
-- is sequenced first, so that the hole has few messages.
-- The commit need not be on the disk: that of the publication is later, and finds out what a crash has lost.
create or replace function tq_events__reserve(n integer, in_write text, as_attempt text, in_part integer, at_place bigint)
    returns table (first_id bigint, last_id bigint) language plpgsql set jit = off as $$
    #variable_conflict use_column
    declare
        last bigint;
        ids bigint[];
    begin
        perform set_config('synchronous_commit', 'off', true);
        perform tq_events__sequence_all(false);
        last = greatest(
            (select last_id from tq_events__runs order by last_id desc limit 1),
            (select last_id from tq_events__holes order by first_id desc limit 1),
            (select last_id from tq_events__parts order by first_id desc limit 1)
        );
        ids = array(select nextval('tq_events__ids') from generate_series(1, n));
        return query
            with given as (
                -- Mostly nobody else got ids meanwhile. To look at each of them takes as long as to give them.
                select ids[1] as low, ids[n] as high where ids[n] - ids[1] = n - 1
                union all
                select min(id), max(id)
                from (select id, id - row_number() over (order by id) as island from unnest(ids) as id) as numbered
                where ids[n] - ids[1] > n - 1
                group by island
            ), between_them as (
                insert into tq_events__holes (first_id, last_id)
                select low, high
                from (select lag(high, 1, last) over (order by low) + 1 as low, low - 1 as high from given) as gaps
                where low <= high
            )
            insert into tq_events__parts (first_id, last_id, write_id, attempt, part, place)
            select low, high, in_write, as_attempt, in_part, at_place from given order by low
            returning first_id, last_id;
    end;
    $$;
-- Make the messages visible that the `attempts` of a write have copied, in the order of their parts: give them the next
-- offsets. Returns their number. Before, give offsets to all that was committed before the call.
create or replace function tq_events__publish(in_write text, attempts text[]) returns bigint language plpgsql as $$
    declare
        next bigint;
        published bigint;
    begin
        perform tq_events__sequence_all(true);
        select first_offset + last_id - first_id + 1 into next from tq_events__runs order by first_offset desc limit 1;
        with parts as (
            delete from tq_events__parts where write_id = in_write and attempt = any(attempts) and copied
            returning part, place, first_id, last_id
        ), added as (
            insert into tq_events__runs (first_offset, first_id, last_id)
            select
                next + sum(last_id - first_id + 1) over (order by part, place, first_id) - (last_id - first_id + 1),
                first_id, last_id
            from parts
        )
        select coalesce(sum(last_id - first_id + 1), 0) into published from parts;
        return published;
    end;
    $$;

-- create_topic_groups
-- The log of a topic with groups refuses a message without one, from whomever: an ordered
-- subscription needs it.
-- Locks: the log, for a moment. Runs in one transaction: a crash leaves nothing.
alter table tq_events add constraint tq_events__grouped check (group_key is not null);

-- drop_ranges
-- Drop the ranges of a subscription.
-- In one transaction with its queue: a crash leaves all or nothing.
drop function if exists tq_events__s1__ranges_claim;
drop function if exists tq_events__s1__ranges_read;
drop function if exists tq_events__s1__ranges_pump;
drop table if exists tq_events__s1__ranges;

-- drop_topic
-- Drop the log of a topic, with its messages.
-- In one transaction: a crash leaves all or nothing.
drop function if exists tq_events__publish;
drop function if exists tq_events__reserve;
drop function if exists tq_events__sequence_all;
drop function if exists tq_events__sequence;
drop table if exists tq_events__holes;
drop table if exists tq_events__runs;
drop table if exists tq_events;

-- publish_topic
-- Make what the :attempts of the write :write staged visible, in the order of their parts, all at once. See
-- create_topic_functions.
-- One transaction with writer_advance: a crash publishes none.
select tq_events__publish(:write, cast(:attempts as text[]));

-- range_absorb
-- Delete the detached messages that a seek decides about: those that no consumer has had, at any offset,
-- because they are in the log; and those with an offset from :start on that the log still has, because they come
-- again. With :force, the latter even if they are in progress: their leases end.
-- A message before :start that some consumer has had stays, and so does one that the log does not have any more.
-- Indexes: the primary keys, runs by last_id; all detached messages are read.
-- Locks: the rows; locked rows are skipped, and range_remaining finds them. In one transaction with range_seek.
delete from tq_events__s1
where id = any(array(
    select id
    from tq_events__s1 as message
    where (cast(:force as boolean) or state <> 'in_progress')
        and (first_popped_at is null or exists (
            select 1
            from (select first_offset, first_id from tq_events__runs where last_id >= message.id order by last_id limit 1) as run
            where first_id <= message.id and first_offset + message.id - first_id >= :start
                and first_offset > (select min(first_offset) from tq_events__runs)
        ))
    for update skip locked
));

-- range_claim
-- Claim the next range of up to :n messages under a new lease. With :held, first complete the range under that token.
-- Then, after a commit, read its messages: see create_range_functions. A connection of our own sends both together.
select tq_events__s1__ranges_claim(
    :n, cast(:token as uuid), cast(:consumer as text), :lease, coalesce(cast(:now as timestamptz), statement_timestamp()), :all_holes, cast(:held as uuid),
    cast(:number as integer), cast(:sum as bigint)
);
select
    id, cast(payload as text), cast(headers as text), attempts, pushed_at, popped_at, lease_until, priority, group_key, dedup_key,
    due_at, cast(null as jsonb)
from tq_events__s1__ranges_read(cast(:token as uuid));

-- range_complete
-- Complete the range that is held under :token: all :number messages of it, which have this :sum of
-- ids.
-- Index: tq_events__s1__token. Locks: the row. A crash leaves it in progress until its lease expires.
update tq_events__s1__ranges
set finished_at = coalesce(cast(:now as timestamptz), statement_timestamp()), lease_until = null
where token = cast(:token as uuid) and lease_until is not null
    and messages = :number and ids_sum = :sum and left_ids is null
returning id;

-- range_detach
-- The messages of :ids, which ranges under :token hold, become rows of the subscription's queue: ready after :delay
-- seconds, or dead letters if :attempts is :max_attempts. Returns as in push, whether consumers wait.
-- A seek leaves no message both detached and in the log. Older versions did: then this is its state, unless a consumer
-- holds it detached.
-- Indexes: tq_events__s1__token, the primary keys. Locks: the rows. In one transaction with range_mark.
-- `limit` looks each message up: a plan that was made when the log was small would read all of it for a join.
with in_history as (
    delete from tq_events__s1_history where id = any(cast(:ids as bigint[]))
), left_ones as materialized (
    select ids.id, range.id as range_id, popped_at, consumer
    from tq_events__s1__ranges as range
    join unnest(cast(:ids as bigint[])) as ids (id) on true
    cross join lateral (
        select first_offset + ids.id - first_id as message_offset
        from tq_events__runs where last_id >= ids.id order by last_id limit 1
    ) as run
    where token = cast(:token as uuid) and lease_until is not null
        and message_offset between range.first_offset and range.last_offset
), noted as (
    update tq_events__s1__ranges as range
    set apart_ids = coalesce(apart_ids, '{}') || array(select id from left_ones where range_id = range.id)
    where id in (select range_id from left_ones)
), detached as (
    insert into tq_events__s1 as there (
        id, state, attempts, pushed_at, due_at, first_popped_at, popped_at, group_key, producer, consumer, headers,
        errors, payload
    )
    select
        log.id,
        case
            when :attempts >= :max_attempts then 'dead' when cast(:delay as float8) > 0 then 'scheduled' else 'ready'
        end,
        :attempts, log.pushed_at,
        case
            when :attempts < :max_attempts and cast(:delay as float8) > 0
                then coalesce(cast(:now as timestamptz), statement_timestamp()) + cast(:delay as float8) * interval '1 second'
        end,
        popped_at, popped_at, log.group_key, log.producer, consumer, log.headers,
        case
            when cast(:error as text) is not null then jsonb_build_array(jsonb_build_object(
                'attempt', cast(:attempts as integer), 'at', coalesce(cast(:now as timestamptz), statement_timestamp()), 'consumer', consumer, 'error', cast(:error as text)
            ))
        end,
        log.payload
    from left_ones
    cross join lateral (select * from tq_events where id = left_ones.id limit 1) as log
    on conflict (id) do update set
        state = excluded.state, attempts = excluded.attempts, due_at = excluded.due_at, errors = excluded.errors
    where there.state <> 'in_progress'
    returning id
)
select id, (select case
    when :within and pg_advisory_xact_lock_shared(hashtextextended('tq_events', 8318836323)) is null then null
    when pg_try_advisory_lock(hashtextextended('tq_events', 8318836321)) then not pg_advisory_unlock(hashtextextended('tq_events', 8318836321))
    when :within then true
    when not pg_try_advisory_xact_lock(
        hashtextextended('tq_events', 8318836322) # cast(extract(epoch from statement_timestamp()) * 100 as bigint)
    ) then false
    else pg_notify('tq_events', '') is null end) as waited_for from detached;

-- range_due
-- Whether a sweep has something to do: for ranges whose lease has expired, for detached messages that are
-- due or abandoned; and whether a detached message is ready.
-- Indexes: tq_events__s1__lease, those of the states; one entry of each. Locks: none.
select
    exists (select 1 from tq_events__s1__ranges where lease_until <= coalesce(cast(:now as timestamptz), statement_timestamp())),
    exists (select 1 from tq_events__s1 where state = 'scheduled' and due_at <= coalesce(cast(:now as timestamptz), statement_timestamp()))
    or exists (select 1 from tq_events__s1 where state = 'in_progress' and lease_until <= coalesce(cast(:now as timestamptz), statement_timestamp())),
    exists (select 1 from tq_events__s1 where state = 'ready');

-- range_end_leases
-- End the leases of the ranges that have messages with an offset from :start on, for a seek that is
-- forced. Their messages are then detached as if it had expired.
-- Index: tq_events__s1__lease. Locks: the rows; locked rows are skipped. In one transaction with range_seek.
update tq_events__s1__ranges set lease_until = coalesce(cast(:now as timestamptz), statement_timestamp())
where id = any(array(
    select id from tq_events__s1__ranges where lease_until > coalesce(cast(:now as timestamptz), statement_timestamp()) and last_offset >= :start for update skip locked
));

-- range_expire
-- The messages that have not left range :id, whose lease has expired, become rows of the subscription's queue: ready,
-- or dead letters if one attempt was all they had. The range is not in progress any more.
-- Indexes: the primary keys. Locks: the rows. A crash leaves all or nothing.
with expired as (
    select id, first_offset, last_offset, left_ids, popped_at, consumer from tq_events__s1__ranges where id = :id
), lost as materialized (
    select log.*, popped_at, consumer
    from expired
    join tq_events__runs as run
        on run.first_offset >= (select max(first_offset) from tq_events__runs where first_offset <= expired.first_offset)
            and run.first_offset <= expired.last_offset
    join tq_events as log on log.id
        between run.first_id + greatest(expired.first_offset - run.first_offset, 0)
        and least(run.last_id, run.first_id + expired.last_offset - run.first_offset)
    where left_ids is null or log.id <> all(left_ids)
), in_history as (
    delete from tq_events__s1_history where id = any(array(select id from lost))
), closed as (
    update tq_events__s1__ranges set lease_until = null where id = :id
)
insert into tq_events__s1 as there (
    id, state, attempts, pushed_at, first_popped_at, popped_at, group_key, producer, consumer, headers, errors, payload
)
select
    id, case when :max_attempts <= 1 then 'dead' else 'ready' end, 1, pushed_at, popped_at, popped_at, group_key,
    producer, consumer, headers,
    jsonb_build_array(jsonb_build_object('attempt', 1, 'at', coalesce(cast(:now as timestamptz), statement_timestamp()), 'consumer', consumer, 'error', 'lease expired')),
    payload
from lost
on conflict (id) do update set
    state = excluded.state, attempts = excluded.attempts, errors = excluded.errors
where there.state <> 'in_progress';

-- range_expired
-- Up to :n ranges whose lease has expired. Index: tq_events__s1__lease. Locks: the rows; locked rows are skipped.
select id from tq_events__s1__ranges where lease_until <= coalesce(cast(:now as timestamptz), statement_timestamp()) order by lease_until limit :n for update skip locked;

-- range_extend
-- Extend the leases on the ranges under :token that hold messages of :ids: they end :lease seconds from now.
-- Returns these messages.
-- Indexes: tq_events__s1__token, the index of the runs by last_id. Locks: the rows. A crash leaves all extended, or none.
with held as materialized (
    select id, first_offset, last_offset, left_ids
    from tq_events__s1__ranges
    where token = cast(:token as uuid) and lease_until is not null
    for update
), found as materialized (
    select ids.id, held.id as range_id
    from unnest(cast(:ids as bigint[])) as ids (id)
    cross join lateral (
        select first_id, first_offset + ids.id - first_id as message_offset
        from tq_events__runs where last_id >= ids.id order by last_id limit 1
    ) as run
    join held on message_offset between held.first_offset and held.last_offset
    where run.first_id <= ids.id and (left_ids is null or ids.id <> all(left_ids))
), extended as (
    update tq_events__s1__ranges
    set lease_until = coalesce(cast(:now as timestamptz), statement_timestamp()) + cast(:lease as float8) * interval '1 second'
    where id in (select range_id from found)
    returning id, lease_until
)
select found.id, lease_until from found join extended on extended.id = range_id;

-- range_find
-- Message :id, if it is in the log, and it is ready or a range in progress holds it. After a seek the last
-- range counts.
-- Indexes: the primary keys, that of the runs by last_id; the ranges are read backwards until one has it. Locks: none.
with message as (
    select log.*, first_offset + log.id - first_id as message_offset
    from tq_events as log
    left join tq_events__runs as run on run.last_id = (select min(last_id) from tq_events__runs where last_id >= :id)
        and first_id <= :id
    where log.id = :id and not exists (select from tq_events__parts where :id between first_id and last_id)
), next as (
    select greatest(last_offset + 1, (select min(first_offset) + 1 from tq_events__runs)) as position
    from tq_events__s1__ranges order by id desc limit 1
), held as (
    select consumer, popped_at, lease_until, left_ids
    from tq_events__s1__ranges
    where (select message_offset from message) between first_offset and last_offset
        and (select message_offset from message) < (select position from next)
    order by id desc
    limit 1
)
select
    id, payload, headers, case when popped_at is null then 'ready' else 'in_progress' end as state,
    case when popped_at is null then 0 else 1 end as attempts, 0 as priority, group_key, null as dedup_key, producer,
    consumer, pushed_at, cast(null as timestamptz) as due_at, popped_at as first_popped_at, popped_at, lease_until,
    cast(null as timestamptz) as finished_at, null as errors
from message
cross join next
left join held on true
where message_offset is null or message_offset >= position
    or (lease_until is not null and (left_ids is null or id <> all(left_ids)));

-- range_finished
-- The last :n messages with ids from :low to :high finished from :since on and before :until, highest
-- id first: those that ranges finished (with :final only those that are not in progress any more), if the log still
-- has them, and those of the history of the subscription. Messages that left a range have the time of the last ones
-- that did. If a message was finished again after a seek, its last pop counts.
-- Of the intervals of ids only the first ones are read, which have so many finished messages, whatever was read again.
-- Indexes: the primary keys, that of the runs by last_id; all ranges are read. Locks: none.
with spans as materialized (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, messages - finished as others,
        greatest(low, :low) as low, least(high, :high) as high
    from (
        select
            range.id as range_id, range.first_offset, last_offset, messages, consumer, popped_at, lease_until,
            finished_at, left_ids, apart_ids, (
                coalesce(cardinality(left_ids), case when finished_at is not null then messages else 0 end)
                - coalesce(cardinality(apart_ids), 0)
            ) as finished,
            run.first_id + greatest(range.first_offset - run.first_offset, 0) as low,
            least(run.last_id, run.first_id + range.last_offset - run.first_offset) as high
        from tq_events__s1__ranges as range
        join tq_events__runs as run
            on run.first_offset >= coalesce(
                (select max(first_offset) from tq_events__runs where first_offset <= range.first_offset), 0
            ) and run.first_offset <= range.last_offset
    ) as piece
    where finished > 0 and (lease_until is null or not cast(:final as boolean))
        and finished_at >= :since and finished_at < :until and low <= :high and high >= :low
        and first_offset <= (
            select max(first_offset + last_id - first_id) from tq_events__runs where last_id >= :low and first_id <= :high
        )
        and last_offset >= (select min(first_offset) from tq_events__runs where last_id >= :low and first_id <= :high)
), counted as (
    select low, sure, sum(sure) over (order by low desc rows unbounded preceding) as so_far
    from (select low, greatest(high - low + 1 - others, 0) as sure from spans) as each_one
), reach as (
    select min(low) as low
    from counted
    where so_far - sure < :n * (1 + (select count(*) from tq_events__s1__ranges where messages = 0))
)
select distinct on (id) *
from (
    select
        id, payload, headers, 'finished' as state, 1 as attempts, 0 as priority, group_key, null as dedup_key, producer,
        consumer, pushed_at, cast(null as timestamptz) as due_at, popped_at as first_popped_at, popped_at,
        cast(null as timestamptz) as lease_until, finished_at, null as errors
    from spans
    cross join lateral (
        select *
        from tq_events
        where id between low and high
            and (left_ids is null or id = any(left_ids)) and (apart_ids is null or id <> all(apart_ids))
        order by id desc
        limit :n
    ) as log
    where high >= (select low from reach)
    union all
    (
        select
            id, payload, headers,
            coalesce(outcome, case when finished_at is null then 'in_progress' else 'finished' end) as state, attempts,
            priority, group_key, dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
            cast(null as timestamptz) as lease_until, finished_at, errors
        from tq_events__s1_history
        where id between :low and :high and finished_at >= :since and finished_at < :until
        order by id desc
        limit :n
    )
) as finished
order by id desc, popped_at desc
limit :n;

-- range_finished_bounds
-- The lowest and the highest id of the ranges that finished messages from :since on and before
-- :until, and of the messages of the subscription's history that were: no other id has such a message.
-- For `+ 0` see finished_bounds.
-- Indexes: the primary keys, tq_events__s1__finished; all ranges are read. Locks: none.
select min(low), max(high)
from (
    select low, high
    from (
        select
            range.id as range_id, range.first_offset, last_offset, messages, consumer, popped_at, lease_until,
            finished_at, left_ids, apart_ids, (
                coalesce(cardinality(left_ids), case when finished_at is not null then messages else 0 end)
                - coalesce(cardinality(apart_ids), 0)
            ) as finished,
            run.first_id + greatest(range.first_offset - run.first_offset, 0) as low,
            least(run.last_id, run.first_id + range.last_offset - run.first_offset) as high
        from tq_events__s1__ranges as range
        join tq_events__runs as run
            on run.first_offset >= coalesce(
                (select max(first_offset) from tq_events__runs where first_offset <= range.first_offset), 0
            ) and run.first_offset <= range.last_offset
    ) as piece
    where finished > 0 and finished_at >= :since and finished_at < :until
    union all
    select min(id + 0), max(id + 0) from tq_events__s1_history where finished_at >= :since and finished_at < :until
) as bounds;

-- range_floor
-- What a subscription still needs: the first offset of its ranges in progress, null if there is none; and
-- the one at which its next claim begins.
-- On PostgreSQL, tq_events__trim has the same look. Indexes: tq_events__s1__lease, the primary key. Locks: none.
select (select min(first_offset) from tq_events__s1__ranges where lease_until is not null), last_offset + 1
from tq_events__s1__ranges order by id desc limit 1;

-- range_hold
-- Lock the ranges under :token. Return the messages of :ids that they hold: those that have not left them.
-- Indexes: tq_events__s1__token, the index of the runs by last_id. Locks: the rows.
with held as materialized (
    select first_offset, last_offset, left_ids
    from tq_events__s1__ranges
    where token = cast(:token as uuid) and lease_until is not null
    for update
)
select ids.id
from unnest(cast(:ids as bigint[])) as ids (id)
cross join lateral (
    select first_id, first_offset + ids.id - first_id as message_offset
    from tq_events__runs where last_id >= ids.id order by last_id limit 1
) as run
join held on message_offset between held.first_offset and held.last_offset
where run.first_id <= ids.id and (left_ids is null or ids.id <> all(left_ids));

-- range_live
-- The last :n messages with ids from :low to :high that are live, in any state, highest id first: the detached ones,
-- those that ranges in progress hold, and those that no range has. A detached message comes once.
-- Indexes: the primary keys, tq_events__s1__lease, that of the runs by last_id. Locks: none.
with spans as materialized (
    select greatest(low, :low) as low, least(high, :high) as high, messages
    from (
        with next as (
            select greatest(last_offset + 1, (select min(first_offset) + 1 from tq_events__runs)) as position
            from tq_events__s1__ranges order by id desc limit 1
        ), unclaimed as (
            select first_id + greatest(position - first_offset, 0) as low, last_id as high
            from tq_events__runs
            cross join next
            where first_offset >= (select max(first_offset) from tq_events__runs where first_offset <= position)
                and first_offset + last_id - first_id >= position
        )
        select low, high, high - low + 1 as messages from unclaimed
        union all
        select greatest(
            (select last_id from tq_events__runs order by last_id desc limit 1),
            (select last_id from tq_events__holes order by first_id desc limit 1),
            (select last_id from tq_events__parts order by first_id desc limit 1)
        ) + 1, 9223372036854775807, 0
        union all
        select first_id, last_id, 0 from tq_events__holes
    ) as unclaimed
    where high >= :low and low <= :high
), counted as (
    select
        low, high, messages,
        sum(case when messages > 0 then high - low + 1 else 0 end) over (order by low desc) as so_far
    from spans
)
select distinct on (id) *
from (
    select
        id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
        first_popped_at, popped_at, lease_until, cast(null as timestamptz) as finished_at, errors
    from tq_events__s1
    where id between :low and :high
    union all
    select
        id, payload, headers, 'in_progress' as state, 1 as attempts, 0 as priority, group_key, null as dedup_key,
        producer, consumer, pushed_at, cast(null as timestamptz) as due_at, popped_at as first_popped_at, popped_at,
        lease_until, cast(null as timestamptz) as finished_at, null as errors
    from (
        select
            range.id as range_id, range.first_offset, last_offset, messages, consumer, popped_at, lease_until,
            finished_at, left_ids, apart_ids, (
                coalesce(cardinality(left_ids), case when finished_at is not null then messages else 0 end)
                - coalesce(cardinality(apart_ids), 0)
            ) as finished,
            run.first_id + greatest(range.first_offset - run.first_offset, 0) as low,
            least(run.last_id, run.first_id + range.last_offset - run.first_offset) as high
        from tq_events__s1__ranges as range
        join tq_events__runs as run
            on run.first_offset >= coalesce(
                (select max(first_offset) from tq_events__runs where first_offset <= range.first_offset), 0
            ) and run.first_offset <= range.last_offset
    ) as piece
    cross join lateral (
        select *
        from tq_events
        where id between greatest(low, :low) and least(high, :high) and (left_ids is null or id <> all(left_ids))
        order by id desc
        limit :n
    ) as log
    where lease_until is not null
    union all
    select
        id, payload, headers, 'ready' as state, 0 as attempts, 0 as priority, group_key, null as dedup_key, producer,
        cast(null as text) as consumer, pushed_at, cast(null as timestamptz) as due_at,
        cast(null as timestamptz) as first_popped_at, cast(null as timestamptz) as popped_at,
        cast(null as timestamptz) as lease_until, cast(null as timestamptz) as finished_at, null as errors
    from counted
    cross join lateral (select * from tq_events where id between low and high order by id desc limit :n) as log
    where so_far - case when messages > 0 then high - low + 1 else 0 end < :n
) as live
order by id desc, attempts desc
limit :n;

-- range_live_bounds
-- The lowest and the highest id of the live messages of a subscription, and of ranges in progress.
-- Indexes: the primary keys, tq_events__s1__lease. Locks: none.
select min(low), max(high)
from (
    select min(id) as low, max(id) as high from tq_events__s1
    union all
    select low, high from (
        select
            range.id as range_id, range.first_offset, last_offset, messages, consumer, popped_at, lease_until,
            finished_at, left_ids, apart_ids, (
                coalesce(cardinality(left_ids), case when finished_at is not null then messages else 0 end)
                - coalesce(cardinality(apart_ids), 0)
            ) as finished,
            run.first_id + greatest(range.first_offset - run.first_offset, 0) as low,
            least(run.last_id, run.first_id + range.last_offset - run.first_offset) as high
        from tq_events__s1__ranges as range
        join tq_events__runs as run
            on run.first_offset >= coalesce(
                (select max(first_offset) from tq_events__runs where first_offset <= range.first_offset), 0
            ) and run.first_offset <= range.last_offset
    ) as piece where lease_until is not null
    union all
    select low, least(high, (select max(id) from tq_events)) from (
        with next as (
            select greatest(last_offset + 1, (select min(first_offset) + 1 from tq_events__runs)) as position
            from tq_events__s1__ranges order by id desc limit 1
        ), unclaimed as (
            select first_id + greatest(position - first_offset, 0) as low, last_id as high
            from tq_events__runs
            cross join next
            where first_offset >= (select max(first_offset) from tq_events__runs where first_offset <= position)
                and first_offset + last_id - first_id >= position
        )
        select low, high, high - low + 1 as messages from unclaimed
        union all
        select greatest(
            (select last_id from tq_events__runs order by last_id desc limit 1),
            (select last_id from tq_events__holes order by first_id desc limit 1),
            (select last_id from tq_events__parts order by first_id desc limit 1)
        ) + 1, 9223372036854775807, 0
        union all
        select first_id, last_id, 0 from tq_events__holes
    ) as unclaimed
) as bounds
where low <= high;

-- range_mark
-- Mark the messages of :ids, which ranges under :token hold, as left. A range is finished when all have left it.
-- Index: tq_events__s1__token. Locks: the rows. A crash leaves them in progress until the lease expires.
update tq_events__s1__ranges as held
set finished_at = coalesce(cast(:now as timestamptz), statement_timestamp()),
    left_ids = case
        when messages > coalesce(cardinality(left_ids), 0) + cardinality(of_range.ids)
            then coalesce(left_ids, '{}') || of_range.ids
    end,
    lease_until = case
        when messages > coalesce(cardinality(left_ids), 0) + cardinality(of_range.ids) then lease_until
    end
from (
    select range.id, array_agg(ids.id) as ids
    from tq_events__s1__ranges as range
    join unnest(cast(:ids as bigint[])) as ids (id) on true
    cross join lateral (
        select first_offset + ids.id - first_id as message_offset
        from tq_events__runs where last_id >= ids.id order by last_id limit 1
    ) as run
    where token = cast(:token as uuid) and lease_until is not null
        and message_offset between range.first_offset and range.last_offset
    group by range.id
) as of_range
where held.id = of_range.id;

-- range_note
-- Note as a finished range what a :consumer has read by itself, :age seconds long: all before the offset
-- :start. Nothing is noted while ranges are in progress, which are counted.
-- Indexes: the primary key, tq_events__s1__lease. Locks: range_wait comes before it, so that it sees the last claim.
with last as (
    select last_offset from tq_events__s1__ranges order by id desc limit 1
), open as (
    select count(*) as ranges from tq_events__s1__ranges where lease_until is not null
), noted as (
    insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, consumer, popped_at, finished_at)
    select
        last_offset + 1, :start - 1, :start - 1 - last_offset, 0, cast(:consumer as text),
        coalesce(cast(:now as timestamptz), statement_timestamp()) - cast(:age as float8) * interval '1 second', coalesce(cast(:now as timestamptz), statement_timestamp())
    from last
    cross join open
    where last_offset + 1 < :start and open.ranges = 0
)
select ranges from open;

-- range_peek_in_progress
-- The first :n messages of the log with an id above :after that ranges in progress hold.
-- Indexes: tq_events__s1__lease, the primary keys. Locks: none.
select
    id, payload, headers, 'in_progress' as state, 1 as attempts, 0 as priority, group_key, null as dedup_key, producer,
    consumer, pushed_at, cast(null as timestamptz) as due_at, popped_at as first_popped_at, popped_at, lease_until,
    cast(null as timestamptz) as finished_at, null as errors
from (
    select
        range.id as range_id, range.first_offset, last_offset, messages, consumer, popped_at, lease_until,
        finished_at, left_ids, apart_ids, (
            coalesce(cardinality(left_ids), case when finished_at is not null then messages else 0 end)
            - coalesce(cardinality(apart_ids), 0)
        ) as finished,
        run.first_id + greatest(range.first_offset - run.first_offset, 0) as low,
        least(run.last_id, run.first_id + range.last_offset - run.first_offset) as high
    from tq_events__s1__ranges as range
    join tq_events__runs as run
        on run.first_offset >= coalesce(
            (select max(first_offset) from tq_events__runs where first_offset <= range.first_offset), 0
        ) and run.first_offset <= range.last_offset
) as piece
cross join lateral (
    select *
    from tq_events
    where id between greatest(low, :after + 1) and high and (left_ids is null or id <> all(left_ids))
    order by id
    limit :n
) as log
where lease_until is not null
order by id
limit :n;

-- range_peek_ready
-- The first :n messages of the log with an id above :after that no range has, from the position of the subscription on.
-- Of the intervals of ids only the first ones are read, which have so many messages.
-- Indexes: the primary keys, that of the runs by last_id. Locks: none.
with spans as materialized (
    select greatest(low, :after + 1) as low, high, messages from (
        with next as (
            select greatest(last_offset + 1, (select min(first_offset) + 1 from tq_events__runs)) as position
            from tq_events__s1__ranges order by id desc limit 1
        ), unclaimed as (
            select first_id + greatest(position - first_offset, 0) as low, last_id as high
            from tq_events__runs
            cross join next
            where first_offset >= (select max(first_offset) from tq_events__runs where first_offset <= position)
                and first_offset + last_id - first_id >= position
        )
        select low, high, high - low + 1 as messages from unclaimed
        union all
        select greatest(
            (select last_id from tq_events__runs order by last_id desc limit 1),
            (select last_id from tq_events__holes order by first_id desc limit 1),
            (select last_id from tq_events__parts order by first_id desc limit 1)
        ) + 1, 9223372036854775807, 0
        union all
        select first_id, last_id, 0 from tq_events__holes
    ) as unclaimed where high > :after
), counted as (
    select
        low, high, messages,
        sum(case when messages > 0 then high - low + 1 else 0 end) over (order by low) as so_far
    from spans
)
select
    id, payload, headers, 'ready' as state, 0 as attempts, 0 as priority, group_key, null as dedup_key, producer,
    cast(null as text) as consumer, pushed_at, cast(null as timestamptz) as due_at,
    cast(null as timestamptz) as first_popped_at, cast(null as timestamptz) as popped_at,
    cast(null as timestamptz) as lease_until, cast(null as timestamptz) as finished_at, null as errors
from counted
cross join lateral (select * from tq_events where id between low and high order by id limit :n) as log
where so_far - case when messages > 0 then high - low + 1 else 0 end < :n
order by id
limit :n;

-- range_position
-- The offset at which the next claim of a subscription begins; and of the last range or seek, its
-- number and its consumer, null of a seek.
-- Index: the primary key. Locks: none.
select last_offset + 1, id, consumer from tq_events__s1__ranges order by id desc limit 1;

-- range_pump
-- Move the next :n messages of the log to the queue of an ordered subscription. Returns their number. See
-- create_range_functions.
select tq_events__s1__ranges_pump(:n, coalesce(cast(:now as timestamptz), statement_timestamp()));

-- range_purge
-- Delete the ranges that have no message any more at or after the offset :start, but for the last one, after which the
-- next claim begins. Index: the primary key. Locks: the rows. A crash leaves all or nothing.
delete from tq_events__s1__ranges
where last_offset < :start and lease_until is null and id < (select max(id) from tq_events__s1__ranges);

-- range_remaining
-- How many ranges and detached messages a seek to :start has left where none may be: others have
-- locked them, or they are in progress.
-- Indexes: tq_events__s1__lease, the primary keys, that of the runs by last_id; all detached messages are read. Locks: none.
select
    (select count(*) from tq_events__s1__ranges where lease_until is not null and last_offset >= :start)
    + (
        select count(*)
        from tq_events__s1 as message
        where first_popped_at is null or exists (
            select 1
            from (select first_offset, first_id from tq_events__runs where last_id >= message.id order by last_id limit 1) as run
            where first_id <= message.id and first_offset + message.id - first_id >= :start
                and first_offset > (select min(first_offset) from tq_events__runs)
        )
    );

-- range_seek
-- Let the next claim begin at :start.
-- The row has no messages. Locks: none.
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (
    cast(:start as bigint), cast(:start as bigint) - 1, 0, 0, coalesce(cast(:now as timestamptz), statement_timestamp()), coalesce(cast(:now as timestamptz), statement_timestamp())
);

-- range_stats
-- The messages of a subscription that are in the log alone: not claimed yet, in progress, and finished;
-- and the age of the first one not claimed. What the last 100,000 ranges finished is counted. If there are more
-- ranges, it is an estimate: as many messages as there are offsets from the first range on.
-- Indexes: the primary keys, tq_events__s1__lease. Locks: none.
with bounds as (
    select
        greatest(
            (select last_offset + 1 from tq_events__s1__ranges order by id desc limit 1),
            (select min(first_offset) + 1 from tq_events__runs)
        ) as next,
        (select first_offset + last_id - first_id + 1 from tq_events__runs order by first_offset desc limit 1) as ends,
        greatest(
            (select last_id from tq_events__runs order by last_id desc limit 1),
            (select last_id from tq_events__holes order by first_id desc limit 1),
            (select last_id from tq_events__parts order by first_id desc limit 1)
        ) as last_id
)
select
    greatest(ends - next, 0) + (select count(*) from tq_events where id > bounds.last_id),
    (
        select coalesce(sum(messages - coalesce(cardinality(left_ids), 0)), 0)
        from tq_events__s1__ranges where lease_until is not null
    ),
    (
        select case
            when count(*) < 100000 then coalesce(sum(finished), 0)
            else greatest(sum(finished), max(last_offset) - (select first_offset from tq_events__s1__ranges order by id limit 1) + 1)
        end
        from (
            select last_offset, (
                coalesce(cardinality(left_ids), case when finished_at is not null then messages else 0 end)
                - coalesce(cardinality(apart_ids), 0)
            ) as finished
            from tq_events__s1__ranges where messages > 0 order by id desc limit 100000
        ) as claimed
    ),
    (
        select cast(extract(epoch from coalesce(cast(:now as timestamptz), statement_timestamp()) - pushed_at) as float8)
        from tq_events
        where id = coalesce(
            (
                select first_id + bounds.next - first_offset from tq_events__runs
                where first_offset <= bounds.next and bounds.next < bounds.ends order by first_offset desc limit 1
            ),
            (select min(id) from tq_events where id > bounds.last_id)
        )
    )
from bounds;

-- range_stats_finished
-- Of the last :n messages that the last :n ranges finished less than :age seconds ago, the last
-- one first: producer, consumer, seconds of wait and of run, attempts, and how many seconds ago each was finished.
-- Messages that left a range have the time of the last ones that did.
-- Indexes: the primary keys. Locks: none.
with spans as materialized (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, low, high,
        greatest(high - low + 1 - (messages - finished), 0) as sure,
        sum(greatest(high - low + 1 - (messages - finished), 0))
            over (order by finished_at desc rows unbounded preceding) as so_far
    from (
        select
            range.id as range_id, range.first_offset, last_offset, messages, consumer, popped_at, lease_until,
            finished_at, left_ids, apart_ids, (
                coalesce(cardinality(left_ids), case when finished_at is not null then messages else 0 end)
                - coalesce(cardinality(apart_ids), 0)
            ) as finished,
            run.first_id + greatest(range.first_offset - run.first_offset, 0) as low,
            least(run.last_id, run.first_id + range.last_offset - run.first_offset) as high
        from tq_events__s1__ranges as range
        join tq_events__runs as run
            on run.first_offset >= coalesce(
                (select max(first_offset) from tq_events__runs where first_offset <= range.first_offset), 0
            ) and run.first_offset <= range.last_offset
    ) as piece
    where finished > 0 and finished_at > coalesce(cast(:now as timestamptz), statement_timestamp()) - cast(:age as float8) * interval '1 second' and finished_at <= coalesce(cast(:now as timestamptz), statement_timestamp())
        and range_id >= (select min(id) from (select id from tq_events__s1__ranges order by id desc limit :n) as claimed)
)
select
    producer,
    consumer,
    cast(extract(epoch from popped_at - pushed_at) as float8) as wait,
    cast(extract(epoch from finished_at - popped_at) as float8) as run,
    1 as attempts,
    cast(extract(epoch from coalesce(cast(:now as timestamptz), statement_timestamp()) - finished_at) as float8) as ago
from spans
cross join lateral (
    select producer, pushed_at
    from tq_events
    where id between low and high
        and (left_ids is null or id = any(left_ids)) and (apart_ids is null or id <> all(apart_ids))
    limit :n
) as log
where so_far - sure < :n
order by finished_at desc
limit :n;

-- range_until_next
-- Seconds until a message can be popped: 0 if one is ready, null if none is expected; and whether an open transaction
-- has pushed, so that a message may come at any moment. For waiting consumers.
-- Indexes: those of the states, tq_events__s1__lease, the primary keys; one entry of each, and one for each hole.
-- Locks: an advisory one, for the length of a look.
select
    case
        when paused.until is not null then cast(extract(epoch from paused.until - coalesce(cast(:now as timestamptz), statement_timestamp())) as float8)
        when exists (select 1 from tq_events__s1 where state = 'ready')
            or exists (select 1 from tq_events where id > greatest(
                (select last_id from tq_events__runs order by last_id desc limit 1),
                (select last_id from tq_events__holes order by first_id desc limit 1),
                (select last_id from tq_events__parts order by first_id desc limit 1)
            ))
            or (select first_offset + last_id - first_id from tq_events__runs order by first_offset desc limit 1)
                > (select last_offset from tq_events__s1__ranges order by id desc limit 1)
            or exists (
                select 1 from tq_events__holes as hole
                where exists (select 1 from tq_events where id between hole.first_id and hole.last_id)
            ) then 0
        else cast(extract(epoch from least(
            (select min(due_at) from tq_events__s1 where state = 'scheduled'),
            (select min(lease_until) from tq_events__s1 where state = 'in_progress'),
            (select min(lease_until) from tq_events__s1__ranges where lease_until is not null)
        ) - coalesce(cast(:now as timestamptz), statement_timestamp())) as float8)
    end as seconds,
    paused.until is not null as paused,
    case when pg_try_advisory_lock(hashtextextended('tq_events', 8318836323)) then not pg_advisory_unlock(hashtextextended('tq_events', 8318836323)) else true end as pushing
from (select max(until) as until from tq__paused where name = 'tq_events__s1' and until > coalesce(cast(:now as timestamptz), statement_timestamp())) as paused;

-- range_wait
-- Wait for the lock of a subscription's claims, and hold it until the transaction ends.
select pg_advisory_xact_lock(hashoidextended(cast('tq_events__s1__ranges' as regclass), 8318836325));

-- sequence
-- Give the messages that have become visible their offsets; see create_topic_functions.
select tq_events__sequence(true, true);

-- topic_bounds
-- The first offset of the log, and the one after the last.
-- Indexes: those of the runs. Locks: none.
select
    (select min(first_offset) + 1 from tq_events__runs),
    (select first_offset + last_id - first_id + 1 from tq_events__runs order by first_offset desc limit 1);

-- topic_copy
-- A bulk push: the messages come in COPY's binary format, with the ids that topic_reserve gave. All of them, or none.
-- Their time is the default: to read it 20,000 times took a fifth of the server's time.
copy tq_events (id, payload, headers, producer, group_key) from stdin (format binary);

-- topic_flush
-- If the log has the offset :start: have the commit of this transaction flush the WAL up to its own record, and so all
-- commits that it has seen: those that gave offsets may not have flushed (range_claim). A commit flushes only if the
-- transaction has an id and synchronous_commit is not off.
select
    cast(pg_current_xact_id() as text),
    case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end
where (select first_offset + last_id - first_id from tq_events__runs order by first_offset desc limit 1) >= :start;

-- topic_push
-- Push one message to the log.
-- Returns the id, and whether waiting consumers must be notified from another connection.
-- Locks: none that another transaction waits for; NOTIFY's, as in push. A crash before the commit leaves nothing.
with pushed as (
    insert into tq_events (pushed_at, producer, group_key, headers, payload)
    values (
        coalesce(cast(:now as timestamptz), statement_timestamp()), cast(:producer as text), cast(:group as text), cast(:headers as json),
        cast(:payload as json)
    )
    returning id
)
select id, (select case
    when :within and pg_advisory_xact_lock_shared(hashtextextended('tq_events', 8318836323)) is null then null
    when pg_try_advisory_lock(hashtextextended('tq_events', 8318836321)) then not pg_advisory_unlock(hashtextextended('tq_events', 8318836321))
    when :within then true
    when not pg_try_advisory_xact_lock(
        hashtextextended('tq_events', 8318836322) # cast(extract(epoch from statement_timestamp()) * 100 as bigint)
    ) then false
    else pg_notify('tq_events', '') is null end) as waited_for from pushed;

-- topic_push_each
-- Push a batch of messages, each with a group and headers of its own: all of them, or none. As topic_push_many.
with pushed as (
    insert into tq_events (pushed_at, producer, group_key, headers, payload)
    select
        coalesce(cast(:now as timestamptz), statement_timestamp()), cast(:producer as text), group_key, cast(headers as json),
        cast(payload as json)
    from unnest(
        cast(:payloads as text[]), cast(:groups as text[]), cast(:headers as text[])
    ) with ordinality as batch (payload, group_key, headers, place)
    order by place
    returning id
)
select id, (select case
    when :within and pg_advisory_xact_lock_shared(hashtextextended('tq_events', 8318836323)) is null then null
    when pg_try_advisory_lock(hashtextextended('tq_events', 8318836321)) then not pg_advisory_unlock(hashtextextended('tq_events', 8318836321))
    when :within then true
    when not pg_try_advisory_xact_lock(
        hashtextextended('tq_events', 8318836322) # cast(extract(epoch from statement_timestamp()) * 100 as bigint)
    ) then false
    else pg_notify('tq_events', '') is null end) as waited_for from pushed;

-- topic_push_many
-- Push a batch of messages in one statement, in the order of the array: all of them, or none.
-- Returns the ids, and as in push, whether waiting consumers must be notified from another connection.
-- Locks: none that another transaction waits for; NOTIFY's, as in push. A crash before the commit leaves nothing.
with pushed as (
    insert into tq_events (pushed_at, producer, group_key, headers, payload)
    select
        coalesce(cast(:now as timestamptz), statement_timestamp()), cast(:producer as text), cast(:group as text), cast(:headers as json),
        cast(payload as json)
    from unnest(cast(:payloads as text[])) with ordinality as batch (payload, place)
    order by place
    returning id
)
select id, (select case
    when :within and pg_advisory_xact_lock_shared(hashtextextended('tq_events', 8318836323)) is null then null
    when pg_try_advisory_lock(hashtextextended('tq_events', 8318836321)) then not pg_advisory_unlock(hashtextextended('tq_events', 8318836321))
    when :within then true
    when not pg_try_advisory_xact_lock(
        hashtextextended('tq_events', 8318836322) # cast(extract(epoch from statement_timestamp()) * 100 as bigint)
    ) then false
    else pg_notify('tq_events', '') is null end) as waited_for from pushed;

-- topic_pushed_at
-- When the message was pushed that has the highest id up to the offset :start. These times never go back, so that one
-- can search by them, though a message that was committed late comes after younger ones.
-- Indexes: the primary keys. Locks: none.
select pushed_at from tq_events where id = (
    select max(least(last_id, first_id + :start - first_offset)) from tq_events__runs where first_offset <= :start
);

-- topic_reserve
-- For a bulk push: :n ids from the sequence in one row. In one transaction with topic_copy, which has its id before the
-- ids of the messages are given: see create_topic.
select array_agg(nextval('tq_events__ids')) from generate_series(1, :n) where pg_current_xact_id() is not null;

-- topic_rows
-- The messages at the offsets from :start on and before :end, mostly in their order.
-- Indexes: those of the runs, the primary key of the log. Locks: none.
-- No order by: it would sort the messages, though the indexes have the order already.
select
    run.first_offset + log.id - run.first_id as message_offset, log.id, payload, headers, group_key, producer, pushed_at
from (
    select first_offset, first_id, last_id
    from tq_events__runs
    where first_offset < :end
        and first_offset >= coalesce((select max(first_offset) from tq_events__runs where first_offset <= :start), 0)
    order by first_offset
) as run
join tq_events as log on log.id
    between run.first_id + greatest(:start - run.first_offset, 0)
    and least(run.last_id, run.first_id + :end - 1 - run.first_offset);

-- topic_size
-- What the log has: the number of its messages, the bytes with the index, and the seconds since the first one was
-- pushed. Messages in holes are not counted. A table without partitions has an empty pg_partition_tree.
-- Indexes: the primary keys, that of the runs by last_id. Locks: none.
select
    (select first_offset + last_id - first_id from tq_events__runs order by first_offset desc limit 1)
        - (select min(first_offset) from tq_events__runs)
        + (select count(*) from tq_events where id > greatest(
            (select last_id from tq_events__runs order by last_id desc limit 1),
            (select last_id from tq_events__holes order by first_id desc limit 1),
            (select last_id from tq_events__parts order by first_id desc limit 1)
        )),
    (
        select cast(coalesce(sum(pg_total_relation_size(relid)), 0) as bigint)
        from (
            select relid from pg_partition_tree(cast('tq_events' as regclass))
            union
            select cast('tq_events' as regclass)
        ) as segments
    ),
    (select cast(extract(epoch from coalesce(cast(:now as timestamptz), statement_timestamp()) - pushed_at) as float8) from tq_events order by id limit 1);

-- topic_stage_copied
-- Mark the ids of a piece of a write as used: topic_stage_copy follows, in the same transaction. No row: the write is
-- over, and others have deleted the piece.
-- Index: the primary key. Locks: the rows, so that nobody deletes the piece meanwhile (topic_unstage). The commit need
-- not be on the disk: see create_topic_functions. A crash leaves the piece for the next write, or for a day.
update tq_events__parts set copied = true
where first_id = any(:ids) and write_id = :write and attempt = :attempt
returning first_id, set_config('synchronous_commit', 'off', true);

-- topic_stage_copy
-- The messages of a bulk write come as COPY's text, with the ids that topic_stage_reserve gave. All of them, or none.
-- The server gives the time: to read it from the text for each message would take a tenth of the time.
copy tq_events (id, payload, headers, group_key, producer) from stdin;

-- topic_stage_reserve
-- Reserve :n ids for messages of the write :write. Returns runs of them, in their order. See create_topic_functions.
select first_id, last_id
from tq_events__reserve(:n, :write, :attempt, cast(:part as integer), cast(:place as bigint));

-- topic_stats_pushed
-- Count the messages pushed less than :age seconds ago by moment, among the :n highest ids of the
-- log. Returns the producer, how many seconds ago, and the number of messages.
-- Those of bulk writes under way are not counted.
-- Index: the primary key, backwards, for :n rows: no index has the time of a push, but ids rise with it. Locks: none.
select producer, cast(extract(epoch from coalesce(cast(:now as timestamptz), statement_timestamp()) - pushed_at) as float8) as ago, count(*) as pushed
from (select id, producer, pushed_at from tq_events order by id desc limit :n) as newest
where not exists (select from tq_events__parts where id between first_id and last_id)
    and pushed_at > coalesce(cast(:now as timestamptz), statement_timestamp()) - cast(:age as float8) * interval '1 second' and pushed_at <= coalesce(cast(:now as timestamptz), statement_timestamp())
group by producer, pushed_at;

-- topic_trim
-- Drop the segments whose messages all come before the offset :start, and begin a new one if it is time; see
-- create_topic_functions.
select tq_events__trim(:start, :age, :n, coalesce(cast(:now as timestamptz), statement_timestamp()), :consumed);

-- topic_unstage
-- Delete what the write :write has staged and not published, and what any write left behind a day ago or earlier.
-- Indexes: the primary keys. Locks: the rows. A task that copies just now is left out, and deleted a day later.
-- A crash leaves it for the next write.
with left_behind as materialized (
    select first_id from tq_events__parts
    where write_id = :write or staged_at < coalesce(cast(:now as timestamptz), statement_timestamp()) - interval '1 day'
    for update skip locked
), gone as (
    delete from tq_events__parts where first_id in (select first_id from left_behind)
    returning first_id, last_id
)
delete from tq_events using gone where id between gone.first_id and gone.last_id;

