-- Give the messages that have become visible their offsets: those above the last run, and those in holes. `all_holes`:
-- look at all holes, not only at the last hundred. If another session does it just now, wait if `patient`, else do
-- nothing.
-- Locks: an advisory one, until the transaction ends; so never in a transaction of a caller. Each statement sees what
-- was committed before it began, so the lock comes before the look.
-- One statement looks at all, and gives offsets by id: what is pushed after a commit comes after what was committed.
-- Where there is neither a hole nor a gap, the new messages are one run, and it is enough to count them.
-- A hole is forgotten when no transaction can fill it any more: all whose ids are below its bound had ended before the
-- look. The bound is our own transaction id, if it is given after the hole was seen: the xmax of a snapshot may be
-- below that of a transaction in flight. A bound that no transaction has reached yet is of another cluster, from which
-- the topic was restored.
create or replace function {log}__sequence(all_holes boolean, patient boolean)
    returns void language plpgsql set jit = off as $$
    declare
        clean boolean = pg_current_xact_id_if_assigned() is null;
        horizon xid8;
        next bigint;
        last bigint;
        recent bigint;
        fresh record;
    begin
        if patient then
            perform pg_advisory_xact_lock({sequence_lock});
        elsif not pg_try_advisory_xact_lock({sequence_lock}) then
            return;
        end if;
        select first_offset + last_id - first_id + 1 into next from {runs} order by first_offset desc limit 1;
        select last_id into last from {runs} order by last_id desc limit 1;
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
