-- Limits of messages in progress and of rates: the tables, and what a claim locks and writes there.

-- name: create_slots
-- How many messages of a queue may be in progress, in one row. One transaction writes at a time, so a claim counts
-- those that are. Runs in one transaction: a crash leaves nothing.
create table {slots} (places integer not null) strict;
insert into {slots} values ({concurrency});

-- name: create_rate
-- Runs in one transaction: a crash leaves nothing.
create table {rate} (
    step integer not null,
    burst integer not null,
    spent_until integer not null default 0
) strict;
insert into {rate} (step, burst) values ({step}, {burst});

-- name: create_stripes
-- What the claims of a queue with limits for each group need: the index serves the count of the messages of a group in
-- progress, which is exact, because one transaction writes at a time.
-- Runs in one transaction: a crash leaves nothing.
create index {table}__working on {queue} ({slot}, lease_until) where state = 'in_progress';

-- name: create_group_rates
-- Runs in one transaction: a crash leaves nothing.
create table {group_rates} (
    slot text primary key,
    spent_until integer not null
) strict, without rowid;
create index {table}__spent on {group_rates} (spent_until);

-- name: grant_rate
-- Index: none, it is one row. Locks: none; the transaction is the only one that writes.
select burst - (max(0, spent_until - {now}) + step - 1) / step as tokens, {now} as clock
from {rate};

-- name: spend_rate
-- Index: none, it is one row. In one transaction with the claim: after a crash nothing is spent.
update {rate}
set spent_until = max(spent_until, {now}) + :number * step;

-- name: spend_group_rates
-- Index: the primary key. In one transaction with the claim: after a crash nothing is spent.
insert into {group_rates} as spent (slot, spent_until)
select json_extract(value, '$.slot'), {now} + json_extract(value, '$.number') * {group_step}
from json_each(:by_group)
where true
on conflict (slot) do update
set spent_until = max(spent.spent_until, {now}) + (excluded.spent_until - {now});

-- name: resize_slots
-- Messages in progress are counted by each claim. Locks: the database. Runs in one transaction: a crash leaves the
-- number as it was.
update {slots} set places = {concurrency};

-- name: change_rate
-- Index: none, it is one row. Locks: the row; it waits for claims. A crash leaves the rate as it was.
update {rate}
set spent_until = {now} + cast(min({burst}, 1.0 * max(0, spent_until - {now}) / step) * {step} + 0.999 as integer),
    step = {step},
    burst = {burst};

-- name: forget_rate
-- Locks: the database, for the length of the statement.
update {rate}
set spent_until = {now}
where spent_until > {now} + burst * step + 60000000
returning spent_until;

-- name: forget_rates
-- Index: {table}__spent. Locks: the database, for the length of the statement.
delete from {group_rates}
where slot in (select slot from {group_rates} where spent_until <= {now} order by spent_until limit :n) or slot in (
    select slot from {group_rates}
    where spent_until > {now} + {group_burst} * {group_step} + 60000000
    order by spent_until desc
    limit :n
);
