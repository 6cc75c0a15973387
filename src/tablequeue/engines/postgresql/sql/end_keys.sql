-- Messages lose those of the keys whose time is over: :taken is a JSON array of [key, ...]. A push that takes them can
-- follow. The messages stay as they are otherwise.
-- Indexes: {table}__key, the primary key of {keys}. Locks: the messages, in the order of their keys, so that two such
-- pushes do not deadlock. It waits for another transaction that takes a key, or that finishes its message.
-- In one transaction with the push: a crash changes nothing.
with over as (
    select id from {queue} as message
    where dedup_key = any(array(select given ->> 0 from jsonb_array_elements(cast(:taken as jsonb)) as given))
        and not exists (
            select from {keys} as taken where taken.dedup_key = message.dedup_key and taken.taken_until > {now}
        )
    order by dedup_key
    for update
)
update {queue} as message set dedup_key = null from over where message.id = over.id;
