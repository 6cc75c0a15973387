-- Seconds until a message can be popped: 0 if one is ready, null if none is expected; and whether an open transaction
-- has pushed, so that a message may come at any moment. For waiting consumers.
-- Indexes: those of the states, {table}__lease, the primary keys; one entry of each, and one for each hole.
-- Locks: an advisory one, for the length of a look.
select
    case
        when paused.until is not null then cast(extract(epoch from paused.until - {now}) as float8)
        when exists (select 1 from {queue} where state = 'ready'){or_noted}
            or exists (select 1 from {log} where id > {last_id})
            or (select first_offset + last_id - first_id from {runs} order by first_offset desc limit 1)
                > (select last_offset from {ranges} order by id desc limit 1)
            or exists (
                select 1 from {holes} as hole
                where exists (select 1 from {log} where id between hole.first_id and hole.last_id)
            ) then 0
        else cast(extract(epoch from least(
            (select min(due_at) from {queue} where state = 'scheduled'),
            (select min(lease_until) from {queue} where state = 'in_progress'),
            (select min(lease_until) from {packs}),
            (select min(lease_until) from {ranges} where lease_until is not null)
        ) - {now}) as float8)
    end as seconds,
    paused.until is not null as paused,
    case when pg_try_advisory_lock({pushing_lock}) then not pg_advisory_unlock({pushing_lock}) else true end as pushing
from (select max(until) as until from {paused} where name = '{table}' and until > {now}) as paused;
