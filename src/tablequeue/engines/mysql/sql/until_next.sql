-- Seconds until a message can be popped: 0 if one is ready, null if none is to come. For consumers that wait.
-- Index: {table}__state, one entry of each state. Locks: none.
select
    case
        when paused.until is not null then timestampdiff(microsecond, {now}, paused.until) / 1e6
        -- [not limited]
        when exists (select 1 from {queue} force index ({table}__state) where state = 'ready'){or_noted} then 0
        -- [end]
        -- [limited]
        when exists (select 1 from {queue} force index ({claim_index}) where {free}) then case
            when {room} then {until_room}
            else timestampdiff(microsecond, {now}, (
                select min(sweep_at) from {queue} force index ({table}__state) where state = 'in_progress'
            )) / 1e6
        end
        when false{or_noted} then 0
        -- [end]
        else timestampdiff(microsecond, {now}, least(
            -- [expires grouped]
            coalesce((
                select min(expires_at) from {queue} force index ({table}__expires) where state = 'scheduled'
            ), '9999-01-01'),
            -- [end]
            coalesce((
                select min(sweep_at) from {queue} force index ({table}__state) where state = 'scheduled'
            ), '9999-01-01'),
            coalesce((
                select min(sweep_at) from {queue} force index ({table}__state) where state = 'in_progress'
            ), '9999-01-01')
        )) / 1e6
    end as seconds,
    paused.until is not null as paused
    -- [limited]
    , false as pushing, exists (select 1 from {queue} force index ({claim_index}) where {free})
        and not ({room} and {until_room} <= 0) as held
    -- [end]
from (select max(until) as until from {paused} where name = '{table}' and until > {now}) as paused;
