-- Seconds until a message can be popped: 0 if one is ready, null if none is to come. For consumers that wait.
-- Indexes: {table}__ready, {table}__scheduled, {table}__in_progress, one entry of each. Locks: none.
select
    case
        when paused.until is not null then (paused.until - {now}) / 1e6
        -- [not limited]
        when exists (select 1 from {queue} where state = 'ready') then 0
        -- [end]
        -- [limited]
        when exists (select 1 from {queue} where {free}) then case
            when {room} then {until_room}
            else ((select min(lease_until) from {queue} where state = 'in_progress') - {now}) / 1e6
        end
        -- [end]
        else (min(
            -- [expires grouped]
            coalesce((select min(expires_at) from {queue} where {waiting}), 9e18),
            -- [end]
            coalesce((select min(due_at) from {queue} where state = 'scheduled'), 9e18),
            coalesce((select min(lease_until) from {queue} where state = 'in_progress'), 9e18)
        ) - {now}) / 1e6
    end as seconds,
    paused.until is not null as paused
    -- [limited]
    , 0 as pushing, exists (select 1 from {queue} where {free}) and not ({room} and {until_room} <= 0) as held
    -- [end]
from (select max(until) as until from {paused} where name = '{table}' and until > {now}) as paused;
