-- A word after a colon is a parameter; with --values there are examples, for sqlite3.

-- Claim up to :n ready messages under a new lease; each is claimed by one consumer only.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- Index: tq_emails__ready. Locks: the database, for the length of the statement.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
update tq_emails
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    first_popped_at = coalesce(first_popped_at, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)),
    lease_until = coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) + cast(:lease * 1000000 as integer)
where id in (select id from tq_emails where state = 'ready' and not exists (select 1 from tq__paused where name = 'tq_emails' and until > coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)) order by id limit :n)
returning
    id, payload, headers, attempts, pushed_at, popped_at, lease_until, priority, group_key, dedup_key, due_at, errors;
