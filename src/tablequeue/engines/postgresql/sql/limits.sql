-- Limits of messages in progress and of rates: the tables, and what a claim locks and writes there.

-- name: create_slots
-- The places of a queue that limits how many messages are in progress: a row for each. A claim notes in a place the
-- message that it has claimed and its token. The place is free again when that message is no longer in progress under
-- that token. So nothing that finishes a message frees a place, and a crash occupies none for good.
-- A place with a negative number is closed: nobody claims into it. While its message is in progress, one of the other
-- places is not free either. See close_slots and resize_slots.
-- The pages are filled to a tenth, so that an update stays on its page, and does not touch the index.
-- Runs in one transaction: a crash leaves nothing.
create table {slots} (
    slot bigint constraint {table}__slot primary key,
    message bigint not null default 0,
    token uuid not null default gen_random_uuid()
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
insert into {slots} (slot) select n from generate_series(1, {concurrency}) as n;
analyze {slots};

-- name: create_rate
-- Runs in one transaction: a crash leaves nothing.
create table {rate} (
    step bigint not null,
    burst bigint not null,
    spent_until timestamptz not null default '1970-01-01 00:00:00+00',
    only_row boolean default true check (only_row) constraint {table}__only_rate primary key
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
insert into {rate} (step, burst) values ({step}, {burst});

-- name: create_stripes
-- What the claims of a queue with limits for each group lock: a claim locks the stripe of a group, which is that of all
-- groups with the same remainder of their slot. So two claims never count the messages of a group at the same time.
-- `claims`: how many claims there were. If it is as it was in a snapshot, nobody has claimed since, and what that
-- snapshot counts is exact. The index serves the count of the messages of a group in progress.
-- The pages are filled to a tenth, so that an update stays on its page, and does not touch the index.
-- Runs in one transaction: a crash leaves nothing.
create table {stripes} (
    stripe integer constraint {table}__stripe primary key,
    claims bigint not null default 0
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
insert into {stripes} (stripe) select n from generate_series(0, {last_stripe}) as n;
analyze {stripes};
create index {table}__working on {queue} ({slot}, id) where state = 'in_progress';

-- name: create_group_rates
-- Whoever changes a row has locked the stripe of the group. Runs in one transaction: a crash leaves nothing.
create table {group_rates} (
    slot bigint constraint {table}__group_rate primary key,
    spent_until timestamptz not null
);
create index {table}__spent on {group_rates} (spent_until);

-- name: resize_slots
-- Messages in progress keep theirs: a place that is one too many is closed until its message is finished.
-- Locks: all places, until the transaction ends; it waits for the claims that have locked some. Runs in one
-- transaction: a crash leaves the places as they were.
select slot from {slots} for update;
delete from {slots} as place
where (slot < 0 or slot > {concurrency}) and (
    select true from {queue} where id = place.message and token = place.token and state = 'in_progress'
) is null;
update {slots} set slot = -message where slot > {concurrency};
insert into {slots} (slot)
select n from generate_series(1, {concurrency}) as n
where not exists (select from {slots} where slot = n);
analyze {slots};

-- name: change_rate
-- Index: none, it is one row. Locks: the row; it waits for claims. A crash leaves the rate as it was.
update {rate}
set spent_until = {now} + interval '1 microsecond' * cast(ceil({step} * least(
        {burst}, extract(epoch from greatest(spent_until, {now}) - {now}) * 1000000 / step
    )) as float8),
    step = {step},
    burst = {burst};

-- name: drop_stripes
-- In one transaction with the queue: a crash leaves all or nothing.
drop table if exists {stripes};

-- name: forget_rate
-- Index: none, it is one row. Locks: the row, if it changes.
update {rate}
set spent_until = {now}
where spent_until > {now} + interval '1 minute' + burst * (step * interval '1 microsecond')
returning spent_until;

-- name: forget_rates
-- Index: {table}__spent. Locks: the rows; locked ones are skipped.
-- A claim that comes meanwhile waits for the end of this statement, and adds its row again.
delete from {group_rates}
where slot = any(array(
    select slot from {group_rates} where spent_until <= {now} order by spent_until limit :n for update skip locked
)) and spent_until <= {now} or slot = any(array(
    select slot from {group_rates}
    where spent_until > {now} + interval '1 minute' + {group_burst} * (interval '1 microsecond' * {group_step})
    order by spent_until desc
    limit :n
    for update skip locked
)) and spent_until > {now} + interval '1 minute' + {group_burst} * (interval '1 microsecond' * {group_step});

-- name: close_slots
-- Remove the closed places whose message is no longer in progress. Index: the primary keys, {table}__in_progress.
-- Locks: the rows. A crash leaves some of it for the next time.
delete from {slots} as place
where slot < 0 and (
    select true from {queue} where id = place.message and token = place.token and state = 'in_progress'
) is null;
insert into {slots} (slot, message, token)
select -id, id, token
from {queue} as held
where state = 'in_progress'
    and not exists (select from {slots} as place where place.message = held.id and place.token = held.token)
on conflict do nothing;

-- name: check_slots
-- Replication slots that hold back the clean-up of dead rows by a million transactions or more: name, how many.
-- Locks: none.
select slot_name, age(xmin)
from pg_replication_slots
where age(xmin) > 1000000
order by age(xmin) desc
limit 10;
