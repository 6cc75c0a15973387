-- The log of a topic. Its rows are never changed.
-- Ids are given before commits. So the offset of a message, which says when it became visible, is in the runs: a run is
-- ids without a gap that were all visible when a session looked, and an offset is first_offset + id - first_id. The
-- first run is empty. The holes are the ids between runs, each with a transaction id above those of all transactions
-- that may still fill it (null: not known yet).
-- The default of the id gives the transaction its id first, by which a hole is forgotten; nextval alone gives none.
-- Runs in one transaction: a crash leaves nothing.
create sequence {log}__ids;
create table {log} (
    id bigint not null default (
        cast(cast(pg_current_xact_id() as text) as bigint) * 0 + nextval('{log}__ids')
    ),
    pushed_at timestamptz not null,
    producer text,
    group_key text,
    headers json,
    payload {payload_type} not null,
    constraint {table}__id primary key (id)
) partition by range (id);
alter sequence {log}__ids owned by {log}.id;
create table {log}__segment_0 partition of {log} for values from (0) to ({segment});
create table {log}__segment_1 partition of {log} for values from ({segment}) to (2 * {segment});
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
-- Give the messages that have become visible their offsets: those above the last run, and those in holes. Do nothing
-- if another session does it just now. `all_holes`: look at all holes, not only at the last hundred.
-- Locks: an advisory one, until the transaction ends; so never in a transaction of a caller. Each statement sees what
-- was committed before it began, so the lock comes before the look.
-- One statement looks at all, and gives offsets by id: what is pushed after a commit comes after what was committed.
-- A hole is forgotten when no transaction can fill it any more: all whose ids are below its bound had ended before the
-- look. The bound is our own transaction id, if it is given after the hole was seen: the xmax of a snapshot may be below
-- that of a transaction in flight.
create function {log}__sequence(all_holes boolean) returns void language plpgsql set jit = off as $$
    declare
        clean boolean = pg_current_xact_id_if_assigned() is null;
        horizon xid8;
        next bigint;
        last bigint;
        recent bigint;
    begin
        if not pg_try_advisory_xact_lock({sequence_lock}) then
            return;
        end if;
        select first_offset + last_id - first_id + 1 into next from {runs} order by first_offset desc limit 1;
        select last_id into last from {runs} order by last_id desc limit 1;
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
        if clean and exists (select from {holes} where bound is null) then
            update {holes} set bound = pg_current_xact_id() where bound is null;
        end if;
        delete from {holes} where first_id >= recent and bound <= horizon;
    end;
    $$;
