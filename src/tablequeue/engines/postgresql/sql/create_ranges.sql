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
