-- Groups: their tables, the heads of ordered groups, the turns of fair ones, claims of one group.

-- name: create_fair
-- What a fair queue has in addition: the group that was served last, by the slot of its messages.
create table {ring} (served text not null) strict;
insert into {ring} values ('');

-- name: create_groups
-- The unique index holds that promise: one message of a group at most is ready, scheduled or in progress. Those of a
-- run are in progress together: in_run is the id of the message if it was claimed in a run, else 0. In an open run it
-- is minus the id: such a message holds up those behind it, and not those before it. So a message becomes the head if
-- no head of its group has an in_run above minus its own id.
alter table {queue} add column in_run integer not null default 0;
create unique index {table}__front on {queue} (group_key, in_run) where {head};

-- name: create_heads
-- Whenever a group may have lost its head, or got its first message, a trigger makes the lowest id its head; it
-- is scheduled if it has a due time, which the next sweep looks at. Not while an open run of the group has a message
-- with a lower id; see create_groups. One writer at a time: nothing can come between.
create trigger {table}__pushed after insert on {queue}
    when not exists (select 1 from {queue} where group_key = new.group_key and {head} and in_run >= 0)
    begin
        update {queue} set state = case when due_at is null then 'ready' else 'scheduled' end
        where id = (select id from {queue} where group_key = new.group_key and state = 'blocked' order by id limit 1)
            and not exists (
                select 1 from {queue} as held
                where held.group_key = new.group_key and held.{head} and held.in_run > -{queue}.id
            );
    end;
create trigger {table}__moved after update of state on {queue}
    when new.state in ('dead', 'blocked')
        and not exists (select 1 from {queue} where group_key = new.group_key and {head} and in_run >= 0)
    begin
        update {queue} set state = case when due_at is null then 'ready' else 'scheduled' end
        where id = (select id from {queue} where group_key = new.group_key and state = 'blocked' order by id limit 1)
            and not exists (
                select 1 from {queue} as held
                where held.group_key = new.group_key and held.{head} and held.in_run > -{queue}.id
            );
    end;
create trigger {table}__left after delete on {queue}
    when not exists (select 1 from {queue} where group_key = old.group_key and {head} and in_run >= 0)
    begin
        update {queue} set state = case when due_at is null then 'ready' else 'scheduled' end
        where id = (select id from {queue} where group_key = old.group_key and state = 'blocked' order by id limit 1)
            and not exists (
                select 1 from {queue} as held
                where held.group_key = old.group_key and held.{head} and held.in_run > -{queue}.id
            );
    end;

-- name: drop_fair
-- The rest of a fair queue.
drop table if exists {ring};

-- name: claim_ring
-- The slot of the group that was served last. Index: none. Locks: none.
select served from {ring};

-- name: move_ring
-- Note the slot of the group that was served last. In the transaction of the claim: a rollback leaves it as it was.
update {ring} set served = :served;

-- name: claim_run
-- Claim the next ready message and up to :n - 1 that are blocked behind it in its group, in order of ids, under one
-- lease. The run ends before the first one that is due later, and before one that is in progress in an open run. With
-- :run 1 no message of the group is promoted while one is in progress, so the group is closed until all of them are
-- finished. With -1 the run is open: see create_groups.
-- The first ready message of a group that is not in :passed comes first, else the first one of all: a claim of an open
-- run passes over the groups that the process claimed from lately.
-- Indexes: {table}__ready, {table}__blocked, the primary key. Locks: the database, for the length of the statement.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
with head as (
    select id, group_key from {queue}
    where id = coalesce((
        select id from {queue}
        where {claimable} and group_key not in (select value from json_each(:passed))
        order by id limit 1
    ), (select id from {queue} where {claimable} order by id limit 1))
    limit min(1, {claim_limit})
), behind as (
    select id, due_at from {queue}
    where group_key = (select group_key from head) and state = 'blocked'{in_time}
        and id < (
            select coalesce(-max(held.in_run), 9223372036854775807) from {queue} as held
            where held.group_key = (select group_key from head) and held.in_run < 0 and held.{head}
        )
    order by id limit max(0, {claim_limit} - 1)
)
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = {now} + cast(:lease * 1000000 as integer),
    in_run = id * :run
where id in (
    select id from head
    union all
    select id from (select id, max(coalesce(due_at > {now}, 0)) over (order by id) as is_later from behind)
    where not is_later
)
returning
    {claimed};

-- name: claim_alone
-- Claim up to :n ready messages of the group with the slot :slot under a new lease, in order of ids, if no other group
-- has anything ready; else none. For queues without limits that deliver at least once.
-- Index: {table}__ready: one look into it on either side of :slot. Locks: the database, while the statement runs.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = {now} + cast(:lease * 1000000 as integer)
where id in (
    select id from {queue}
    where {claimable} and {slot} = :slot
        and not exists (select 1 from {queue} where state = 'ready' and {slot} < :slot)
        and not exists (select 1 from {queue} where state = 'ready' and {slot} > :slot)
    order by id
    limit :n
)
returning
    {claimed};

-- name: claim_group
-- Index: {table}__ready. Locks: the database, for the length of the statement.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = {now} + cast(:lease * 1000000 as integer)
where id in (select id from {queue} where {claimable} and {slot} = :group order by id limit :n)
returning
    {claimed};
