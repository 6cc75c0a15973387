-- Seconds until a message can be popped: 0 if one is ready, null if none is to come. For consumers that wait.
-- Indexes: those of the states, {table}__lease, the primary keys; one entry of each. Locks: none.
select
    case
        when paused.until is not null then (paused.until - {now}) / 1e6
        when exists (select 1 from {queue} where state = 'ready')
            or (select max(id) from {log}) > (select last_offset from {ranges} order by id desc limit 1) then 0
        else (min(
            coalesce((select min(due_at) from {queue} where state = 'scheduled'), 9e18),
            coalesce((select min(lease_until) from {queue} where state = 'in_progress'), 9e18),
            coalesce((select min(lease_until) from {ranges} where lease_until is not null), 9e18)
        ) - {now}) / 1e6
    end as seconds,
    paused.until is not null as paused
from (select max(until) as until from {paused} where name = '{table}' and until > {now}) as paused;
