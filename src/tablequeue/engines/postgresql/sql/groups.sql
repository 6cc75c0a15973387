-- Groups: their tables, the heads of ordered groups, the turns of fair ones, claims of one group.

-- name: create_groups
-- The unique index holds that promise: one message of a group at most is ready, scheduled or in progress. Those of a
-- run are in progress together: in_run is the id of the message if it was claimed in a run, else 0. In an open run it
-- is minus the id: such a message holds up those behind it, and not those before it. So a message becomes the head if
-- no head of its group has an in_run above minus its own id.
-- The table has the notes of the triggers, which promote reads; see create_group_triggers.
alter table {queue} add column in_run bigint not null default 0;
create unique index {table}__front on {queue} (group_key, in_run) where {head};
create table {turns} (
    id bigint generated always as identity primary key,
    group_key text not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);

-- name: create_group_functions
-- Refuse new heads of groups that a run has closed, or that are behind a message of an open run, as the unique index
-- refuses a second head. Promote calls it.
-- The snapshot of promote may be older than the run. The function looks with a new one. Since the index has the new
-- head, no other run can begin before the commit. That holds under READ COMMITTED, where promote runs.
create or replace function {queue}__closed(heads text[]) returns void language plpgsql strict as $$
    begin
        if exists (
            select from unnest(heads) as head (group_key)
            where exists (
                select from {queue} as message
                where message.group_key = head.group_key and message.in_run <> 0 and {head}
                    and message.in_run > (
                        select -front.id from {queue} as front
                        where front.group_key = head.group_key and front.in_run = 0 and front.{head}
                    )
            )
        ) then
            raise exception using errcode = 'unique_violation', constraint = '{table}__front',
                message = 'A run of the group is in progress.';
        end if;
    end;
    $$;

-- name: create_group_triggers
-- The triggers of a grouped queue only note, in the transaction of the change, which groups to look at: those that got
-- a message, and those that may have lost their head. Notes are inserts, for which no transaction waits; promote reads
-- them when they are committed. To decide in the trigger would miss what others have not committed yet, or wait for it.
-- They also fire in sessions whose session_replication_role is replica: else groups would stop.
create function {turn}() returns trigger language plpgsql as $$
    begin
        if tg_op = 'INSERT' then
            insert into {turns} (group_key) select group_key from pushed group by group_key order by min(id);
        elsif tg_op = 'DELETE' then
            insert into {turns} (group_key)
            select group_key from removed where state <> 'dead' group by group_key order by min(id);
        else
            insert into {turns} (group_key) values (new.group_key);
        end if;
        return null;
    end;
    $$;
create trigger {table}__pushed after insert on {queue}
    referencing new table as pushed for each statement execute function {turn}();
create trigger {table}__left after delete on {queue}
    referencing old table as removed for each statement execute function {turn}();
create trigger {table}__moved after update on {queue}
    for each row when (new.state in ('dead', 'blocked') and old.state <> new.state) execute function {turn}();
alter table {queue} enable always trigger {table}__pushed;
alter table {queue} enable always trigger {table}__left;
alter table {queue} enable always trigger {table}__moved;

-- name: drop_groups
-- Drop what a grouped queue has beside its table: the notes of its triggers, and its functions.
drop table if exists {turns};
drop function if exists {turn}();
drop function if exists {queue}__closed(text[]);

-- name: claim_ring
-- The slot of a random one of up to :n groups that have something ready, in turn. A process begins behind it.
-- Index: {table}__ready, one look for each group. Locks: none.
{random_group};

-- name: begin_ring
-- In printed SQL only: a session without a setting tablequeue.{ring_of_session} gets a group to begin behind, as
-- claim_ring chooses it.
-- Index: {table}__ready, one look for each group. Locks: none.
select set_config('tablequeue.{ring_of_session}', cast(coalesce((
    {random_group}
), served) as text), false)
from (select hashtextextended(cast(gen_random_uuid() as text), 0) as served offset 0) as beginning
where coalesce(current_setting('tablequeue.{ring_of_session}', true), '') = '';

-- name: move_ring
-- In printed SQL only: note in the setting tablequeue.{ring_of_session} which group was served last, by its slot
-- :served. If nothing was claimed, :served is null.
-- Index: that of the state. Locks: none.
select set_config('tablequeue.{ring_of_session}', cast(served as text), false)
from (select cast(:served as bigint) as served) as last
where served is not null;

-- name: claim_run
-- Claim the next ready message and up to :n - 1 that are blocked behind it in its group, in order of ids, under one
-- lease. The run ends before the first one that is due later, that another transaction is changing, or that is in
-- progress in an open run. With :run 1 no message of the group is promoted while one is in progress, so the group is
-- closed until all of them are finished. With -1 the run is open: see create_groups.
-- The first ready message of a group that is not in :passed comes first, else the first one of all: a claim of an open
-- run passes over the groups that the process claimed from lately.
-- Indexes: {table}__ready, {table}__blocked, {table}__front, the primary key; for state || '' see promote. Locks: the
-- rows; locked ones are skipped, so it waits for nobody. A claim must lock the first message before it claims the
-- others.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
with
-- [limited]
{permits}
-- [end]
fresh as materialized (
    select id, group_key from {queue}
    where {claimable} and group_key <> all(array(select json_array_elements_text(cast(:passed as json))))
    order by id
    limit least(1, {claim_limit})
    for update skip locked
), passed as materialized (
    select id, group_key from {queue}
    where {claimable} and not exists (select from fresh)
    order by id
    limit least(1, {claim_limit})
    for update skip locked
), head as materialized (
    select id, group_key from fresh
    union all
    select id, group_key from passed
), behind as materialized (
    select id from {queue}
    where group_key = (select group_key from head) and state = 'blocked'{in_time}
        and id < (
            select coalesce(-max(held.in_run), 9223372036854775807) from {queue} as held
            where held.group_key = (select group_key from head) and held.in_run < 0 and held.{head}
        )
    order by id
    limit greatest(0, {claim_limit} - 1)
), mine as materialized (
    select id, due_at from {queue}
    where id = any(array(select id from behind)) and state || '' = 'blocked'
    for update skip locked
), run as (
    select id from head
    union all
    select id
    from (
        select
            behind.id,
            bool_and(mine.id is not null and coalesce(mine.due_at <= {now}, true)) over (order by behind.id) as follows
        from behind left join mine on mine.id = behind.id
    ) as message
    where follows
)
-- [limited]
, claimed as (
-- [end]
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = cast(:token as uuid),
    consumer = cast(:consumer as text),
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = {now} + cast(:lease as float8) * interval '1 second',
    in_run = id * cast(:run as bigint)
where id = any(array(select id from run))
returning
    -- [not limited]
    {claimed};
    -- [end]
    -- [limited]
    {claimed}
), {noted}
select {of_claimed} from claimed;
-- [end]

-- name: claim_alone
-- Claim up to :n ready messages of the group with the slot :slot under a new lease, in order of ids after :after, if
-- no group with another slot has anything ready; else none. For queues without limits that deliver at least once.
-- Index: {table}__ready, by the slot: one look into it on either side of :slot. Locks: the rows; those that another one
-- is claiming are passed over. id = any(array(...)): the subquery runs once. Each part has an order and a limit, and no
-- `=` for the slot: else the planner, which expects few messages, reads all of them.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = cast(:token as uuid),
    consumer = cast(:consumer as text),
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = {now} + cast(:lease as float8) * interval '1 second'
where id = any(array(
    select id from {queue}
    where {claimable} and ({slot}, id) > (cast(:slot as bigint), cast(:after as bigint))
        and {slot} <= cast(:slot as bigint)
        and (
            select id from {queue} where state = 'ready' and {slot} < cast(:slot as bigint) order by {slot}, id limit 1
        ) is null
        and (
            select id from {queue} where state = 'ready' and {slot} > cast(:slot as bigint) order by {slot}, id limit 1
        ) is null
    order by {slot}, id
    limit :n
    for update skip locked
))
returning
    {claimed};

-- name: claim_group
-- Index: {table}__ready, by the slot of the group; another group may have the same slot. Locks: the rows; those that
-- another one is claiming are passed over. id = any(array(...)): the subquery runs once.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = cast(:token as uuid),
    consumer = cast(:consumer as text),
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = {now} + cast(:lease as float8) * interval '1 second'
where id = any(array(
    select id from {queue}
    where {claimable} and {slot} = hashtextextended(cast(:group as text), 0)
        and group_key = cast(:group as text)
    order by {slot}, id
    limit :n
    for update skip locked
))
returning
    {claimed};

-- name: promote
-- In up to :n groups that the triggers have noted, the lowest blocked message becomes the head, if there is none, and
-- if it is not behind a message of an open run (see create_groups).
-- Returns the number of new heads, the last note, and whether consumers wait, as in push.
-- Indexes: {table}__front, {table}__blocked. In order of notes from :noted on: dead entries before it are not walked
-- again (messages.py; 0.7 ms with 200,000 of them).
-- Locks: the notes (locked ones are skipped), the new heads. A message that another transaction has locked is passed
-- over, so that no group waits for that transaction. It gets a new note, since a rollback leaves none. No other message
-- of its group becomes the head meanwhile, for the first one would be overtaken.
-- If two transactions promote in the same group at once, the unique index refuses one of them, which tries again. So
-- does one in whose group a run has begun meanwhile: see create_group_functions.
-- state || '' keeps the planner, whose statistics are always outdated here, from reading all of {table}__blocked in
-- addition to the primary key (8 ms with 200,000 blocked messages, and growing with them, instead of 0.2 ms).
-- A crash leaves all or nothing: groups that were not promoted are still noted.
with turn as (
    delete from {turns}
    where id = any(array(select id from {turns} where id > :noted order by id limit :n for update skip locked))
    returning id, group_key
), vacant as (
    select distinct group_key from turn
    where not exists (
        select 1 from {queue} as message where message.group_key = turn.group_key and {head} and message.in_run >= 0
    )
), next as materialized (
    select group_key, (
        select id from {queue} as message
        where message.group_key = vacant.group_key and state = 'blocked'
        order by id limit 1
    ) as id
    from vacant
), open as materialized (
    select id, group_key from next
    where id is not null and not exists (
        select 1 from {queue} as held
        where held.group_key = next.group_key and {head} and held.in_run > -next.id
    )
), mine as materialized (
    select id from {queue}
    where id = any(array(select id from open)) and state || '' = 'blocked'
    for update skip locked
), moved as (
    update {queue}
    set state = case when due_at > {now} then 'scheduled' else 'ready' end
    where id = any(array(select id from mine))
    returning group_key
), noted_again as (
    insert into {turns} (group_key)
    select group_key from open where id <> all(array(select id from mine))
), head as (
    select count(*) as number, array_agg(group_key) as groups from moved
)
select number, (select max(id) from turn), case when number > 0 then {waited_for} else false end
from head, {queue}__closed(head.groups);
