-- For psql, as it is. With `psql --single-transaction` it is all or nothing.

-- The creators' lock: one at a time makes or upgrades tables in a database, until its transaction ends; the number is
-- tablequeue's own. CREATE ... IF NOT EXISTS alone fails when two run at once.
select pg_advisory_xact_lock(8318836321);

-- The catalogue: one row a queue, with its definition as JSON and the version of its tables.
-- Under the creators' lock. A crash leaves nothing.
create table if not exists tq_queues (
    name text constraint tq__queues_name primary key,
    definition text not null,
    schema_version integer not null,
    created_at timestamptz not null
);

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
    pushed_at timestamptz not null,
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
-- Give the messages that have become visible their offsets: those above the last run, and those in holes. Do nothing
-- if another session does it just now. `all_holes`: look at all holes, not only at the last hundred.
-- Locks: an advisory one, until the transaction ends; so never in a transaction of a caller. Each statement sees what
-- was committed before it began, so the lock comes before the look.
-- One statement looks at all, and gives offsets by id: what is pushed after a commit comes after what was committed.
-- A bound that no transaction of this cluster can have given is of another one, from which the topic was restored.
-- A hole is forgotten when no transaction can fill it any more: all whose ids are below its bound had ended before the
-- look. The bound is our own transaction id, if it is given after the hole was seen: the xmax of a snapshot may be
-- below that of a transaction in flight.
create function tq_events__sequence(all_holes boolean) returns void language plpgsql set jit = off as $$
    declare
        clean boolean = pg_current_xact_id_if_assigned() is null;
        horizon xid8;
        next bigint;
        last bigint;
        recent bigint;
    begin
        if not pg_try_advisory_xact_lock(hashtextextended('tq_events', 8318836324)) then
            return;
        end if;
        select first_offset + last_id - first_id + 1 into next from tq_events__runs order by first_offset desc limit 1;
        select last_id into last from tq_events__runs order by last_id desc limit 1;
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

-- Enter a queue in the catalogue, in the transaction that makes its tables.
insert into tq_queues (name, definition, schema_version, created_at)
values ('events', '{"backoff": {"base": 1.0, "cap": 3600.0, "factor": 2.0, "jitter": 0.1}, "delivery": "at_least_once", "groups": false, "history": "keep", "keep": "forever", "lease": 60.0, "max_attempts": 5, "order": "fifo", "payload": "json", "strict": false, "table": "tq_events"}', 4, statement_timestamp());
