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
-- [end]
