-- The tables and functions of a topic.

-- name: create_topic
-- Ids are given before commits. So the offset of a message, which says when it became visible, is in the runs: a run is
-- ids without a gap that were all visible when a session looked, and an offset is first_offset + id - first_id. The run
-- with the lowest offset is the last message that was dropped; at first 0, which never was.
-- The holes are the ids between runs, each with a transaction id above those of all transactions that may still fill it
-- (null: not known yet). The default of the id gives the transaction its id first; nextval alone gives none.
-- Runs in one transaction: a crash leaves nothing.
create sequence {log}__ids;
create table {log} (
    id bigint not null default (
        cast(cast(pg_current_xact_id() as text) as bigint) * 0 + nextval('{log}__ids')
    ),
    pushed_at timestamptz not null default statement_timestamp(),
    producer text,
    group_key text,
    headers json,
    payload {payload_type} not null,
    constraint {table}__id primary key (id)
)
-- [segments]
partition by range (id)
-- [end]
;
alter sequence {log}__ids owned by {log}.id;
-- [segments]
create table {log}__segment_0 partition of {log} for values from (0) to ({segment});
create table {log}__segment_1 partition of {log} for values from ({segment}) to (2 * {segment});
create table {log}__segment_2 partition of {log} for values from (2 * {segment}) to (3 * {segment});
-- [end]
create table {runs} (
    first_offset bigint not null,
    first_id bigint not null,
    last_id bigint not null,
    constraint {table}__first_offset primary key (first_offset)
);
create index {table}__last_id on {runs} (last_id);
insert into {runs} (first_offset, first_id, last_id) values (0, 0, 0);
create table {holes} (
    first_id bigint not null,
    last_id bigint not null,
    bound xid8,
    constraint {table}__hole primary key (first_id)
);
-- [segments]
-- The segments to which no new id belongs, each with a transaction id above those of all transactions that may still
-- insert into it (null: not known yet).
create table {log}__segments (
    number bigint not null,
    bound xid8,
    constraint {table}__segment primary key (number)
);
-- [end]

-- name: create_parts
-- The notes of bulk writes under way.
-- Runs in one transaction with create_topic: a crash leaves nothing.
alter table {log} alter pushed_at set default statement_timestamp();
-- The ids that the tasks of bulk writes have reserved, and the tasks that have copied their messages there. They are
-- not in a run and not in a hole, and they are below the highest id. So no reader sees these messages.
create table {parts} (
    first_id bigint not null,
    last_id bigint not null,
    write_id text not null,
    attempt text not null,
    part integer not null,
    place bigint not null,
    copied boolean not null default false,
    staged_at timestamptz not null default statement_timestamp(),
    constraint {table}__part primary key (first_id)
);

-- name: create_topic_functions
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
create or replace function {log}__sequence(all_holes boolean, patient boolean) returns void
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
            perform pg_advisory_xact_lock({sequence_lock});
        elsif not pg_try_advisory_xact_lock({sequence_lock}) then
            return;
        end if;
        select first_offset + last_id - first_id + 1 into next from {runs} order by first_offset desc limit 1;
        last = {last_id};
        if not exists (select from {holes}) then
            select count(*) as messages, min(id) as low, max(id) as high
            into fresh
            from (select id from {log} where id > last order by id limit 100000) as visible;
            if fresh.messages = 0 then
                return;
            elsif fresh.low = last + 1 and fresh.high - fresh.low + 1 = fresh.messages then
                insert into {runs} (first_offset, first_id, last_id) values (next, fresh.low, fresh.high);
                return;
            end if;
        end if;
        recent = case when all_holes then 0 else
            coalesce((select first_id from {holes} order by first_id desc offset 99 limit 1), 0)
        end;
        horizon = pg_snapshot_xmin(pg_current_snapshot());
        with filled as (
            delete from {holes} as hole
            where first_id >= recent
                and exists (select from {log} where id between hole.first_id and hole.last_id)
            returning first_id, last_id, bound
        ), visible as (
            select first_id, last_id, bound, id from filled join {log} on id between first_id and last_id
            union all
            select last + 1, null, null, id
            from (select id from {log} where id > last order by id limit 100000) as fresh
        ), islands as materialized (
            select first_id, last_id, bound, min(id) as low, max(id) as high
            from (select *, id - row_number() over (order by id) as island from visible) as numbered
            group by first_id, last_id, bound, island
        ), added_runs as (
            insert into {runs} (first_offset, first_id, last_id)
            select next + sum(high - low + 1) over (order by low) - (high - low + 1), low, high from islands
        )
        insert into {holes} (first_id, last_id, bound)
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
            select from {holes}
            where bound is null or (
                bound >= pg_snapshot_xmax(pg_current_snapshot())
                and bound is distinct from pg_current_xact_id_if_assigned()
            )
        ) then
            update {holes} set bound = pg_current_xact_id()
            where bound is null or bound >= pg_snapshot_xmax(pg_current_snapshot());
        end if;
        delete from {holes} where first_id >= recent and bound <= horizon;
    end;
    $$;
-- Sequence all that was visible before the call. The caller's transaction has the lock until it ends.
create or replace function {log}__sequence_all(all_holes boolean) returns void
    language plpgsql set enable_seqscan = off as $$
    declare
        more boolean = true;
    begin
        while more loop
            more = exists (select from {log} where id > {last_id} offset 99999);
            perform {log}__sequence(all_holes, true);
        end loop;
    end;
    $$;
-- Reserve `n` ids for messages of a bulk write, `place` being that of the first one in its part; returns them. Nobody
-- sees messages that get these ids, until the write is published. A crash leaves the ids reserved.
-- The ids between that other transactions have got, or will get, are a hole from now on. All that had become visible
-- is sequenced first, so that the hole has few messages.
-- The commit need not be on the disk: that of the publication is later, and finds out what a crash has lost.
create or replace function {log}__reserve(n integer, in_write text, as_attempt text, in_part integer, at_place bigint)
    returns table (first_id bigint, last_id bigint) language plpgsql set jit = off as $$
    #variable_conflict use_column
    declare
        last bigint;
        ids bigint[];
    begin
        perform set_config('synchronous_commit', 'off', true);
        perform {log}__sequence_all(false);
        last = {last_id};
        ids = array(select nextval('{log}__ids') from generate_series(1, n));
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
                insert into {holes} (first_id, last_id)
                select low, high
                from (select lag(high, 1, last) over (order by low) + 1 as low, low - 1 as high from given) as gaps
                where low <= high
            )
            insert into {parts} (first_id, last_id, write_id, attempt, part, place)
            select low, high, in_write, as_attempt, in_part, at_place from given order by low
            returning first_id, last_id;
    end;
    $$;
-- Make the messages visible that the `attempts` of a write have copied, in the order of their parts: give them the next
-- offsets. Returns their number. Before, give offsets to all that was committed before the call.
create or replace function {log}__publish(in_write text, attempts text[]) returns bigint language plpgsql as $$
    declare
        next bigint;
        published bigint;
    begin
        perform {log}__sequence_all(true);
        select first_offset + last_id - first_id + 1 into next from {runs} order by first_offset desc limit 1;
        with parts as (
            delete from {parts} where write_id = in_write and attempt = any(attempts) and copied
            returning part, place, first_id, last_id
        ), added as (
            insert into {runs} (first_offset, first_id, last_id)
            select
                next + sum(last_id - first_id + 1) over (order by part, place, first_id) - (last_id - first_id + 1),
                first_id, last_id
            from parts
        )
        select coalesce(sum(last_id - first_id + 1), 0) into published from parts;
        return published;
    end;
    $$;
-- [segments]
-- The first offset that a subscription still needs: of a range in progress; if the topic keeps what is not `consumed`,
-- also that of the next claim, and without a subscription the first of all. `locked`: wait until nobody claims or
-- seeks, and let nobody until the transaction ends; each look comes after its lock, and sees what was committed before.
create or replace function {log}__needed(consumed boolean, locked boolean) returns bigint language plpgsql as $$
    declare
        subscription oid;
        first bigint;
        found boolean = false;
        needed bigint;
    begin
        for subscription in
            select ranges.oid
            from pg_class as ranges
            where relnamespace = (select relnamespace from pg_class where oid = cast('{log}' as regclass))
                and relkind = 'r' and relname ~ '^{table}__s[0-9]+__ranges$'
            order by ranges.oid
        loop
            found = true;
            if locked then
                perform pg_advisory_xact_lock(hashoidextended(subscription, {range_key}));
            end if;
            execute format(
                'select least((select min(first_offset) from %1$s where lease_until is not null), '
                '(select last_offset + 1 from %1$s where $1 order by id desc limit 1))',
                cast(subscription as regclass)
            ) into first using consumed;
            needed = least(needed, first);
        end loop;
        return case when consumed and not found then 0 else coalesce(needed, 9223372036854775807) end;
    end;
    $$;
-- Drop the segments whose messages all come before the offset `upto`, and which no subscription needs. Begin a new
-- segment if the last one has `most` messages, or a message that is older than `oldest` seconds. Returns the number of
-- segments dropped. A crash leaves each segment there, or dropped.
-- The next ids are in the new segment at once, whatever the transaction does. So two segments more are there always,
-- for statements that began before, and what a crash left out is made by the next call.
-- A segment is dropped when no transaction can insert into it any more. Its bound is the transaction id of a later
-- call: that of the call that began the new segment may be below that of a transaction with an id of the old one.
-- Locks: an advisory one; to drop a segment that of the log, and those of the claims of all subscriptions, in which
-- order it cannot wait for a claim that waits for it. It waits 0.1 s for each and then gives up, because all that use
-- the log wait behind it. All of them are held until the transaction ends, which is the call.
create function {log}__trim(upto bigint, oldest float8, most bigint, at timestamptz, consumed boolean)
    returns bigint language plpgsql set lock_timeout = '100ms' as $$
    declare
        current bigint;
        horizon xid8;
        ended bigint;
        alone boolean = false;
        dropped bigint = 0;
    begin
        if not pg_try_advisory_xact_lock({trim_lock}) then
            return 0;
        end if;
        update {log}__segments set bound = pg_current_xact_id()
        where bound is null or bound >= pg_snapshot_xmax(pg_current_snapshot());
        current = (select last_value from {log}__ids) / {segment};
        if to_regclass('{log}__segment_' || (current + 1)) is not null and (
            (select last_value from {log}__ids) - current * {segment} >= most
            or (select pushed_at from {log} where id >= current * {segment} order by id limit 1)
                <= at - oldest * interval '1 second'
        ) then
            current = current + 1;
            perform setval('{log}__ids', current * {segment}, false);
        end if;
        insert into {log}__segments (number)
        select number
        from generate_series((select min(first_id) / {segment} from {runs}), current - 1) as number
        where to_regclass('{log}__segment_' || number) is not null
        on conflict do nothing;
        for number in current .. current + 2 loop
            if to_regclass('{log}__segment_' || number) is null then
                execute format(
                    'create table %s (like {log} including defaults including constraints)',
                    '{log}__segment_' || number
                );
                execute format(
                    'alter table {log} attach partition %s for values from (%s) to (%s)',
                    '{log}__segment_' || number, number * {segment}, (number + 1) * {segment}
                );
            end if;
        end loop;
        horizon = pg_snapshot_xmin(pg_current_snapshot());
        perform {log}__sequence(true, false);
        upto = least(upto, {log}__needed(consumed, false));
        for ended in select number from {log}__segments where bound <= horizon order by number loop
            if not alone and not exists (
                select from {runs}
                where last_id >= ended * {segment} and first_id < (ended + 1) * {segment}
                    and first_offset + last_id - first_id >= upto
            ) then
                lock table {log} in access exclusive mode;
                upto = least(upto, {log}__needed(consumed, true));
                alone = true;
            end if;
            exit when exists (
                select from {runs}
                where last_id >= ended * {segment} and first_id < (ended + 1) * {segment}
                    and first_offset + last_id - first_id >= upto
            ) or exists (
                select from {log}
                where id >= greatest(ended * {segment}, {last_id} + 1) and id < (ended + 1) * {segment}
            ) or exists (
                select from {parts}
                where last_id >= ended * {segment} and first_id < (ended + 1) * {segment}
                    and staged_at >= at - interval '1 day'
            ) or exists (
                select from {holes} as hole
                where last_id >= ended * {segment} and first_id < (ended + 1) * {segment}
                    and exists (select from {log} where id between hole.first_id and hole.last_id)
            );
            execute format('drop table %s', '{log}__segment_' || ended);
            with gone as (
                delete from {runs}
                where first_offset <= (
                    select max(first_offset) from {runs} where last_id < (ended + 1) * {segment}
                )
                returning first_offset + last_id - first_id as last_offset, last_id
            )
            insert into {runs} (first_offset, first_id, last_id)
            select max(last_offset), max(last_id), max(last_id) from gone;
            delete from {holes} where first_id >= ended * {segment} and last_id < (ended + 1) * {segment};
            delete from {parts} where first_id >= ended * {segment} and last_id < (ended + 1) * {segment};
            delete from {log}__segments where number = ended;
            dropped = dropped + 1;
        end loop;
        return dropped;
    end;
    $$;
-- [end]

-- name: create_topic_groups
-- Locks: the log, for a moment. Runs in one transaction: a crash leaves nothing.
alter table {log} add constraint {table}__grouped check (group_key is not null);

-- name: drop_topic
-- In one transaction: a crash leaves all or nothing.
-- [segments]
drop function if exists {log}__trim;
drop function if exists {log}__needed;
drop table if exists {log}__segments;
-- [end]
drop function if exists {log}__publish;
drop function if exists {log}__reserve;
drop function if exists {log}__sequence_all;
drop function if exists {log}__sequence;
drop table if exists {holes};
drop table if exists {runs};
drop table if exists {log};
