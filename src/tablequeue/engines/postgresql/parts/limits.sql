-- What a claim of a queue with limits does besides: see `create_slots` and `create_rate`.

-- name: permits
-- What a claim locks: the row of the rate, and places. Such a claim is one statement too. It claims no more messages
-- than these allow, and notes what it has claimed. If others need the locked rows, it returns ids only, and the
-- messages are read after its commit: the lock would last until the client has received all of them.
{bucket}
-- [concurrency]
{places},
-- [end]

-- name: bucket
-- How many messages the rate allows now. It waits for other claims: the lock of the row makes it exact.
-- [rate]
bucket as materialized (
    select cast(greatest(0, floor(burst - {missing} / step)) as bigint) as tokens
    from {rate}
    where exists (select from {queue} where {claimable})
    for update
),
-- [end]

-- name: places
-- The places whose message is no longer in progress, and those of them that this claim gets. The snapshot may be older
-- than the claim that filled a place last. So a place that is locked must have the note that the snapshot has: then
-- nobody has filled it since. Without the second look at the note, two claims would get the same place.
-- Subqueries, and not joins, look a message up by its primary key, and a place too, whatever the statistics say: a join
-- compared each place with each, and took 160 ms with 1,000.
-- As many of the free places as closed ones are occupied are passed over, the first ones. Claims with different
-- snapshots agree: each leaves so many free places below those that it takes. No closed place costs one look.
free as materialized (
    select slot, message, token from {slots} as place
    where (
        select true from {queue} where id = place.message and token = place.token and state = 'in_progress'
    ) is null and exists (select from {queue} where {claimable}) and slot >= case
        when exists (select from {slots} where slot < 0) then (
            select slot from {slots} as place
            where slot > 0 and (
                select true from {queue} where id = place.message and token = place.token and state = 'in_progress'
            ) is null
            order by slot
            limit 1
            offset (
                select count(*) from {slots} as closed
                where slot < 0 and exists (
                    select from {queue} where id = closed.message and token = closed.token and state = 'in_progress'
                )
            )
        )
        else 1
    end
), place as materialized (
    select place.slot
    from free cross join lateral (
        select slot from {slots}
        where slot = free.slot and message = free.message and token = free.token
        for update skip locked
    ) as place
    limit :n
)

-- name: claim_limit
-- How many messages a claim may claim.
-- [not rate not concurrency]
:n
-- [rate not concurrency]
{take_limit}
-- [not rate concurrency]
least(:n, (select count(*) from place))
-- [rate concurrency]
least(:n, coalesce((select tokens from bucket), 0), (select count(*) from place))
-- [end]

-- name: take_limit
-- The same for a take, after which no message is in progress.
-- [not rate]
:n
-- [rate]
least(:n, coalesce((select tokens from bucket), 0))
-- [end]

-- name: noted
-- What a claim notes.
-- [paced]
{spent}
-- [paced concurrency]
,
-- [concurrency]
noted as (
    update {slots} as place
    set message = noted.message, token = cast(:token as uuid)
    from unnest(array(select slot from place), array(select id from claimed)) as noted (slot, message)
    where place.slot = noted.slot and noted.message is not null
)
-- [per_group not group_rate rate or per_group not group_rate concurrency]
,
-- [per_group not group_rate]
{counted}
-- [end]

-- name: spent
-- What a take notes: how many messages of the rate, and of the rate of each group, it has spent.
-- [rate]
spent as (
    update {rate}
    set spent_until = greatest(spent_until, {now}) + claimed.number * step * interval '1 microsecond'
    from (select count(*) as number from claimed) as claimed
    where claimed.number > 0
)
-- [rate group_rate]
,
-- [group_rate]
{counted}, paid as (
    insert into {group_rates} as paid (slot, spent_until)
    select slot, {now} + count(*) * {group_step} * interval '1 microsecond'
    from claimed
    group by slot
    on conflict (slot) do update
    set spent_until = greatest(paid.spent_until, {now}) + (excluded.spent_until - {now})
)
-- [end]

-- name: counted
-- What claims of groups with limits count: see `create_stripes`.
counted as (
    update {stripes}
    set claims = claims + 1
    where stripe = any(array(select cast(slot & {last_stripe} as integer) from claimed))
)

-- name: of_claimed
-- What a claim returns: see PostgreSQLMessages._claimed.
-- [not contended]
*
-- [contended not fair]
id
-- [contended fair]
id, slot
-- [end]
