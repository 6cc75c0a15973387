-- As claim, for many messages. If none of them was claimed before, is large, or has a key, which must stay in its
-- index, they leave the table for one row of {packs}. Other messages are claimed row by row.
-- Index: {table}__ready; in order of ids from :low_water on. Locks: the rows; a crash claims none.
-- A consumer that dies leaves its pack; sweep returns the messages when the lease has expired.
with picked as materialized (
    select {row} as place,
        first_popped_at is null and dedup_key is null and errors is null
        and octet_length({payload_text}) + coalesce(octet_length(cast(headers as text)), 0) <= {largest_packed}
        as plain
    from {queue}
    where {claimable}
    order by {order_by}
    limit :n
    for update skip locked
), whole as materialized (
    select count(*) between {least_packed} and {most_packed} and bool_and(plain)
        and not exists (select from {packs} where token = cast(:token as uuid)) as packs
    from picked
), gone as (
    delete from {queue}
    where {row} = any(array(select place from picked where (select packs from whole)))
    returning *
), pack as (
    insert into {packs} (
        token, consumer, popped_at, lease_until, size, first_id, last_id, ids, priorities, pushed_ats, due_ats,
        producers, headers, payloads
    )
    select
        cast(:token as uuid), cast(:consumer as text), {now}, {now} + cast(:lease as float8) * interval '1 second',
        count(*), min(id), max(id), array_agg(id), array_agg(priority), array_agg(pushed_at), array_agg(due_at),
        array_agg(producer), array_agg(headers), array_agg(payload)
    from (select * from gone order by id) as message
    having count(*) > 0
), claimed as (
    update {queue}
    set state = 'in_progress',
        attempts = attempts + 1,
        token = cast(:token as uuid),
        consumer = cast(:consumer as text),
        popped_at = {now},
        first_popped_at = coalesce(first_popped_at, {now}),
        lease_until = {now} + cast(:lease as float8) * interval '1 second'
    where {row} = any(array(select place from picked where not (select packs from whole)))
    returning
        {claimed with
            payload = {payload_text} as payload
            headers = {headers_text} as headers
            errors = {errors_text} as errors}
)
select
    {claimed with
        attempts = attempts + 1
        popped_at = {now}
        lease_until = {now} + cast(:lease as float8) * interval '1 second'}
from gone
union all
select * from claimed;
