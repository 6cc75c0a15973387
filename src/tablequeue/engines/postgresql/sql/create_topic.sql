-- The log of a topic. Its rows are never changed.
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
-- Drop the segments whose messages all come before the offset `upto`. Begin a new segment if the last one has `most`
-- messages, or a message that is older than `oldest` seconds. Returns the number of segments dropped. A crash leaves
-- each segment there, or dropped.
-- The next ids are in the new segment at once, whatever the transaction does. So two segments more are there always,
-- for statements that began before, and what a crash left out is made by the next call.
-- A segment is dropped when no transaction can insert into it any more. Its bound is the transaction id of a later
-- call: that of the call that began the new segment may be below that of a transaction with an id of the old one.
-- Locks: an advisory one; that of the log to drop a segment, for which it waits 0.1 s and then gives up, because all
-- that use the log wait behind it. All of them are held until the transaction ends.
create function {log}__trim(upto bigint, oldest float8, most bigint, at timestamptz) returns bigint
    language plpgsql set lock_timeout = '100ms' as $$
    declare
        current bigint;
        horizon xid8;
        ended bigint;
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
        for ended in select number from {log}__segments where bound <= horizon order by number loop
            exit when exists (
                select from {runs}
                where last_id >= ended * {segment} and first_id < (ended + 1) * {segment}
                    and first_offset + last_id - first_id >= upto
            ) or exists (
                select from {log}
                where id >= greatest(ended * {segment}, (select max(last_id) + 1 from {runs}))
                    and id < (ended + 1) * {segment}
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
            delete from {log}__segments where number = ended;
            dropped = dropped + 1;
        end loop;
        return dropped;
    end;
    $$;
-- [end]
