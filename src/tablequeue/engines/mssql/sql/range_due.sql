-- Whether a sweep has something to do: for ranges whose lease has expired, for messages apart that are due or
-- abandoned; and whether a message apart is ready. Indexes: {table}__lease, those of the states; one entry of each.
-- Locks: none that lasts. READPAST passes over what others are finishing.
declare @now datetime2(6) = {now};
select
    case
        when exists (
            select 1 from {ranges} with (readpast, readcommittedlock)
            where lease_until is not null and lease_until <= @now
        ) then 1
        else 0
    end as expired,
    case
        when exists (
            select 1 from {queue} with (readpast, readcommittedlock) where state = 'scheduled' and due_at <= @now
        ) then 1
        when exists (
            select 1 from {queue} with (readpast, readcommittedlock) where state = 'in_progress' and lease_until <= @now
        ) then 1
        else 0
    end as due,
    case
        when exists (select 1 from {queue} with (readpast, readcommittedlock) where state = 'ready'){or_noted} then 1
        else 0
    end as ready;
