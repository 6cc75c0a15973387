-- Claim up to :n ready messages of the group :group under a new lease, in order of ids. The groups keep their turns.
-- Index: {table}__ready, by the slot of the group; another group may have the same slot. Locks: the rows; those that
-- another one is claiming are passed over. id = any(array(...)): the subquery runs once.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = cast(:token as uuid),
    consumer = cast(:consumer as text),
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = {now} + cast(:lease as float8) * interval '1 second'
where id = any(array(
    select id from {queue}
    where {claimable} and {slot} = hashtextextended(cast(:group as text), 0)
        and group_key = cast(:group as text)
    order by {slot}, id
    limit :n
    for update skip locked
))
returning
    {claimed};
