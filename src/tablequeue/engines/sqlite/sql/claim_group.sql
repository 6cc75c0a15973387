-- Claim up to :n ready messages of the group :group under a new lease, in order of ids. The groups keep their turns.
-- Index: {table}__ready. Locks: the database, for the length of the statement.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = {now} + cast(:lease * 1000000 as integer)
where id in (select id from {queue} where {claimable} and {slot} = :group order by id limit :n)
returning
    {claimed};
