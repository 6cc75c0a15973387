-- In up to :n groups that the triggers have noted, the lowest blocked message becomes the head, if there is none, and
-- if it is not behind a message of an open run (see create_groups).
-- Returns the number of new heads, the last note, and whether consumers wait, as in push.
-- Indexes: {table}__front, {table}__blocked. In order of notes from :noted on: dead entries before it are not walked
-- again (messages.py; 0.7 ms with 200,000 of them).
-- Locks: the notes (locked ones are skipped), the new heads.
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
), moved as (
    update {queue}
    set state = case when due_at > {now} then 'scheduled' else 'ready' end
    where id = any(array(
        select id from next
        where not exists (
            select 1 from {queue} as held
            where held.group_key = next.group_key and {head} and held.in_run > -next.id
        )
    )) and state || '' = 'blocked'
    returning group_key
), head as (
    select count(*) as number, array_agg(group_key) as groups from moved
)
select number, (select max(id) from turn), case when number > 0 then {waited_for} else false end
from head, {queue}__closed(head.groups);
