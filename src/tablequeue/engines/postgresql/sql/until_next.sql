-- Seconds until a message can be popped: 0 if one is ready, null if none is expected; and whether an open transaction
-- has pushed, so that a message may come at any moment. For waiting consumers. Last, for the marks of the next look,
-- the seconds until a lease ends, if no message is ready, and the last id, if the role may know it.
-- Indexes: {table}__ready from :low_water on, {table}__scheduled of the last :since_sweep seconds, {table}__in_progress
-- from :until_lease seconds on, {table}__packs_lease; one entry of each, but with dead ones before it: see walks.py.
-- Locks: an advisory one, for the length of a look.
select
    case
        when paused.until is not null then cast(extract(epoch from paused.until - {now}) as float8)
        -- [not limited]
        when look.ready then 0
        -- [end]
        -- [limited]
        when exists (select 1 from {queue} where {free}) then case
            when {room} then {until_room}
            else cast(extract(epoch from
                (select min(lease_until) from {queue} where state = 'in_progress') - {now}
            ) as float8)
        end
        when look.ready then 0
        -- [end]
        else cast(extract(epoch from least(
            -- [expires grouped]
            (select min(expires_at) from {queue} where {waiting}),
            -- [end]
            (select min(due_at) from {queue} where state = 'scheduled' and due_at > {since_sweep}),
            leased.until,
            (select min(lease_until) from {packs})
        ) - {now}) as float8)
    end as seconds,
    paused.until is not null as paused,
    case when pg_try_advisory_lock({pushing_lock}) then not pg_advisory_unlock({pushing_lock}) else true end as pushing
    -- [limited]
    , exists (select 1 from {queue} where {free}) and not ({room} and {until_room} <= 0) as held
    -- [end]
    , cast(extract(epoch from leased.until - {now}) as float8) as lease,
    case when has_sequence_privilege({ids}, 'usage') then pg_sequence_last_value({ids}) end as last_id
from (select max(until) as until from {paused} where name = '{table}' and until > {now}) as paused
cross join lateral (
    -- [not limited]
    select exists (select 1 from {queue} where state = 'ready'{above_mark}){or_noted} as ready
    -- [end]
    -- [limited]
    select false{or_noted} as ready
    -- [end]
    offset 0 -- otherwise it is evaluated for each reference
) as look
cross join lateral (
    select min(lease_until) as until
    from {queue}
    where state = 'in_progress' and lease_until > {from_lease} and paused.until is null and not look.ready
) as leased;
