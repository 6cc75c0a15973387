-- Seconds until a message can be popped: 0 if one is ready, null if none is to come. For consumers that wait. If it is
-- not 0, the holes tell whether a message was committed late: each repeats the condition of the last statement.
-- Indexes: {table}__state, {table}__lease, the primary keys; one entry of each, and one for each hole. Locks: none.
select
    case
        when paused.until is not null then timestampdiff(microsecond, {now}, paused.until) / 1e6
        when exists (select 1 from {queue} force index ({table}__state) where state = 'ready'){or_noted}
            or (select max(id) from {log}) > (select max(last_id) from {runs})
            or (select first_offset + last_id - first_id from {runs} order by first_offset desc limit 1)
                > (select last_offset from {ranges} order by id desc limit 1) then 0
        else timestampdiff(microsecond, {now}, least(
            coalesce((
                select min(sweep_at) from {queue} force index ({table}__state) where state = 'scheduled'
            ), '9999-01-01'),
            coalesce((
                select min(sweep_at) from {queue} force index ({table}__state) where state = 'in_progress'
            ), '9999-01-01'),
            coalesce((select min(lease_until) from {ranges} where lease_until is not null), '9999-01-01')
        )) / 1e6
    end as seconds,
    paused.until is not null as paused
from (select max(until) as until from {paused} where name = '{table}' and until > {now}) as paused;
select first_id, last_id from {holes} where first_id > 0;
select id from {log} force index (primary) where id between :low and :high;
