-- Seconds until a message can be popped: 0 if one is ready, null if none is expected; and whether an open transaction
-- has pushed, so that a message may come at any moment. For waiting consumers.
-- Indexes: {table}__ready, {table}__scheduled, {table}__in_progress, {table}__packs_lease, one entry
-- of each. Locks: an advisory one, for the length of a look.
select
    case
        when paused.until is not null then cast(extract(epoch from paused.until - {now}) as float8)
        -- [not limited]
        when exists (select 1 from {queue} where state = 'ready'){or_noted} then 0
        -- [end]
        -- [limited]
        when exists (select 1 from {queue} where {free}) then case
            when {room} then {until_room}
            else cast(extract(epoch from
                (select min(lease_until) from {queue} where state = 'in_progress') - {now}
            ) as float8)
        end
        when false{or_noted} then 0
        -- [end]
        else cast(extract(epoch from least(
            -- [expires grouped]
            (select min(expires_at) from {queue} where {waiting}),
            -- [end]
            (select min(due_at) from {queue} where state = 'scheduled'),
            (select min(lease_until) from {queue} where state = 'in_progress'),
            (select min(lease_until) from {packs})
        ) - {now}) as float8)
    end as seconds,
    paused.until is not null as paused,
    case when pg_try_advisory_lock({pushing_lock}) then not pg_advisory_unlock({pushing_lock}) else true end as pushing
    -- [limited]
    , exists (select 1 from {queue} where {free}) and not ({room} and {until_room} <= 0) as held
    -- [end]
from (select max(until) as until from {paused} where name = '{table}' and until > {now}) as paused;
