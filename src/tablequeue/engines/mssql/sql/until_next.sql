-- Seconds until a message can be popped: 0 if one is ready, null if none is expected. For waiting consumers.
-- Indexes: {table}__ready, {table}__scheduled, {table}__in_progress, one entry of each. Locks: none under
-- READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that change one of these rows.
declare @now datetime2(6) = {now};
-- [group_limited]
{until_group}
-- [end]
select
    case
        when paused.until is not null then datediff_big(microsecond, @now, paused.until) / 1e6
        -- [not limited]
        when exists (select 1 from {queue} where state = 'ready'){or_noted} then 0e0
        -- [end]
        -- [limited]
        when exists (select 1 from {queue} where {free}) then case
            when {room} then {until_room}
            else datediff_big(microsecond, @now, (
                select min(lease_until) from {queue} where state = 'in_progress'
            )) / 1e6
        end
        when 1 = 0{or_noted} then 0e0
        -- [end]
        else datediff_big(microsecond, @now, (
            select min(coming.at)
            from (
                -- [expires grouped]
                select min(expires_at) as at from {queue} where {waiting}
                union all
                -- [end]
                select min(due_at) as at from {queue} where state = 'scheduled'
                union all
                select min(lease_until) as at from {queue} where state = 'in_progress'
            ) as coming
        )) / 1e6
    end as seconds,
    iif(paused.until is null, 0, 1) as paused
    -- [limited]
    , 0 as pushing
    , iif(exists (select 1 from {queue} where {free}) and not ({room} and {until_room} <= 0), 1, 0) as held
    -- [end]
from (select max(until) as until from {paused} where name = '{table}' and until > @now) as paused;
