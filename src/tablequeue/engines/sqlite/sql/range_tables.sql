-- The tables and functions of a subscription's ranges of the log.

-- name: create_ranges
-- A range with a lease_until is in progress. `left_ids` are the messages that have left it, the last at finished_at:
-- completed before the others; or detached, and in `apart_ids`, too. A range that is finished has no left_ids.
-- When its lease expires, the messages that have not left it are detached, without being in `apart_ids`.
-- Runs in one transaction: a crash leaves nothing.
create table {ranges} (
    id integer primary key,
    first_offset integer not null,
    last_offset integer not null,
    messages integer not null,
    ids_sum integer not null,
    token text,
    consumer text,
    popped_at integer not null,
    lease_until integer,
    finished_at integer,
    left_ids text check (left_ids is null or json_valid(left_ids)),
    apart_ids text check (apart_ids is null or json_valid(apart_ids))
) strict;
create index {table}__token on {ranges} (token) where lease_until is not null;
create index {table}__lease on {ranges} (lease_until) where lease_until is not null;
insert into {ranges} (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (:start, :start - 1, 0, 0, {now}, {now});
