-- Upgrades of tables of an older schema version.

-- name: upgrade_2
-- From schema version 1 to 2: priority, groups and deduplication keys.
-- Locks: the tables, for as long as their indexes take. Runs in one transaction: a crash leaves version 1.
alter table {queue} add column priority integer not null default 0;
alter table {queue} add column group_key text;
alter table {queue} add column dedup_key text;
alter table {queue} drop constraint {table}_state_check;
alter table {queue} add constraint {table}_state_check
check (state in ('ready', 'scheduled', 'in_progress', 'dead', 'blocked'));
create index {table}_blocked on {queue} (group_key, id) where state = 'blocked';
create unique index {table}_key on {queue} (dedup_key) where dedup_key is not null;
-- [keep]
alter table {history} add column priority integer not null default 0;
alter table {history} add column token uuid;
alter table {history} add column group_key text;
alter table {history} add column dedup_key text;
create index {table}_finished on {history} (finished_at);
-- [end]

-- name: upgrade_4
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Of the procedures, those that take other parameters now are dropped; all are to be made again.
-- Locks: the table, for a moment. Runs in one transaction: a crash leaves version 3.
alter index if exists {queue}_ready rename to {table}__ready;
alter index if exists {queue}_scheduled rename to {table}__scheduled;
alter index if exists {queue}_in_progress rename to {table}__in_progress;
alter index if exists {queue}_dead rename to {table}__dead;
alter index if exists {queue}_blocked rename to {table}__blocked;
alter index if exists {queue}_key rename to {table}__key;
drop function if exists {queue}_sweep(float8, timestamptz);
drop function if exists {queue}_arrange(timestamptz);
-- [grouped]
-- The triggers are made again, by create_group_triggers, for their function names the table of the notes.
alter index if exists {queue}_front rename to {table}__front;
alter table if exists {queue}_turns rename to {table}__turns;
drop function if exists {queue}_turn() cascade;
-- [end]
-- [keep]
alter index if exists {queue}_finished rename to {table}__finished;
-- [end]

-- name: upgrade_5
-- From schema version 4 to 5: messages that expire or are cancelled. No table is written anew.
-- Locks: the tables, for a moment. Runs in one transaction: a crash leaves version 4.
alter table {queue} add column expires_at timestamptz, add column cancelled_at timestamptz;
-- [grouped]
-- Messages of a group that were claimed in a run; see create_groups.
alter table {queue} add column in_run bigint not null default 0;
drop index {prefix}{table}__front;
create unique index {table}__front on {queue} (group_key, in_run) where {head};
-- [end]
-- [keep]
alter table {history} add column outcome text;
-- [end]

-- name: upgrade_7
-- From schema version 6 to 7: the messages of packs, each of which was one row with many messages in progress, are rows
-- of the queue, in progress under the same token and lease. A queue of version 2 had no packs.
-- Of the procedures, the one that did so is dropped; all are to be made again.
-- Locks: the tables, for as long as it takes to write the messages. Runs in one transaction: a crash leaves version 6.
do $$
    begin
        if to_regclass('{queue}__packs') is not null then
            insert into {queue} (
                id, state, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, lease_until,
                producer, consumer, headers, payload
            )
            select
                message.id, 'in_progress', 1, message.priority, pack.token, message.pushed_at, message.due_at,
                pack.popped_at, pack.popped_at, pack.lease_until, message.producer, pack.consumer, message.headers,
                message.payload
            from {queue}__packs as pack, unnest(
                pack.ids, pack.priorities, pack.pushed_ats, pack.due_ats, pack.producers, pack.headers, pack.payloads
            ) as message (id, priority, pushed_at, due_at, producer, headers, payload);
        end if;
    end;
    $$;
drop view if exists {queue}__packed;
drop table if exists {queue}__packs;
drop function if exists {queue}_unpack(uuid);

-- name: upgrade_7_batches
-- From schema version 6 to 7: an index by which batches are forgotten that ended long ago.
-- In one transaction: a crash leaves version 6.
create index if not exists tq__batches_ended on {batches} (queue, ended_at);

-- name: upgrade_4_if_packs
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
alter view {queue}_packed rename to {table}__packed;
alter index if exists {queue}_packs_lease rename to {table}__packs_lease;
alter table {queue}_packs rename to {table}__packs;

-- name: upgrade_4_if_parts
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Only if there is such a table, and no queue has that name.
-- What bulk writes under way have staged is lost: they fail, and must be written again.
drop table {queue}_parts;

-- name: upgrade_4_if_schedules
-- From schema version 3 to 4: the schedules are in {schedules}, which is no queue's table.
-- Only if there is such a table, and no queue has that name.
alter table {prefix}tq_schedules rename to tq__schedules;
