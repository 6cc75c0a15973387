-- Seconds until a message can be popped: 0 if one is ready, null if none is expected. For waiting consumers.
-- Indexes: those of the states, {table}__last, {table}__lease, the primary keys; one entry of each, and one for each
-- hole.
-- Locks: none that lasts. READPAST passes over messages in flight, and over what others are finishing.
declare @now datetime2(6) = {now};
select
    case
        when paused.until is not null then datediff_big(microsecond, @now, paused.until) / 1e6
        when exists (select 1 from {queue} with (readpast, readcommittedlock) where state = 'ready'){or_noted}
            or exists (
                select 1 from {log} with (readpast, readcommittedlock)
                where id > (select max(last_id) from {runs} with (readpast, readcommittedlock))
            )
            or (
                select top (1) first_offset + last_id - first_id
                from {runs} with (readpast, readcommittedlock)
                order by first_offset desc
            ) > (
                select top (1) last_offset
                from {ranges} with (index ({table}__last), readcommittedlock)
                order by id desc
            )
            or exists (
                select 1
                from {holes} as hole with (readpast, readcommittedlock)
                inner join {log} as message with (forceseek, readpast, readcommittedlock)
                    on message.id between hole.first_id and hole.last_id
            ) then 0e0
        else datediff_big(microsecond, @now, (
            select min(coming.at)
            from (
                select min(due_at) as at from {queue} with (readpast, readcommittedlock) where state = 'scheduled'
                union all
                select min(lease_until) as at
                from {queue} with (readpast, readcommittedlock)
                where state = 'in_progress'
                union all
                select min(lease_until) as at from {ranges} with (readpast, readcommittedlock)
                where lease_until is not null
            ) as coming
        )) / 1e6
    end as seconds,
    iif(paused.until is null, 0, 1) as paused
from (select max(until) as until from {paused} where name = '{table}' and until > @now) as paused;
