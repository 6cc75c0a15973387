-- The ranges that a subscription has claimed, in the order of the claims: its history. The next claim begins after the
-- last one. The first row has no messages: it says where the subscription begins, and so does that of a seek.
-- A range with a lease_until is in progress. Without it, it is finished, or its lease expired and finished_at is null.
-- `left_ids` are the messages that have left it: completed apart from the others; or set apart, and counted by `apart`.
-- Runs in one transaction: a crash leaves nothing.
create table {ranges} (
    id integer primary key,
    first_offset integer not null,
    last_offset integer not null,
    messages integer not null,
    ids_sum integer not null,
    apart integer not null default 0,
    token text,
    consumer text,
    popped_at integer not null,
    lease_until integer,
    finished_at integer,
    left_ids text check (left_ids is null or json_valid(left_ids))
) strict;
create index {table}__token on {ranges} (token) where lease_until is not null;
create index {table}__lease on {ranges} (lease_until) where lease_until is not null;
insert into {ranges} (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (:start, :start - 1, 0, 0, {now}, {now});
