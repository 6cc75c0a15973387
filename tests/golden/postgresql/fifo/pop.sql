-- A word after a colon is a parameter; with --values there are examples, for psql.

-- Claim up to :n ready messages under a new lease; each is claimed by one consumer only, for SKIP LOCKED passes
-- over those that another one is claiming.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- Index: tq_emails__ready; in order of ids from :low_water on: dead entries before it are not walked again
-- (low_water.py). ctid = any(array(...)): the subquery runs once; a join may run it again and claim more than :n.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
update tq_emails
set state = 'in_progress',
    attempts = attempts + 1,
    token = cast(:token as uuid),
    consumer = cast(:consumer as text),
    popped_at = coalesce(cast(:now as timestamptz), statement_timestamp()),
    first_popped_at = coalesce(first_popped_at, coalesce(cast(:now as timestamptz), statement_timestamp())),
    lease_until = coalesce(cast(:now as timestamptz), statement_timestamp()) + cast(:lease as float8) * interval '1 second'
where ctid = any(array(
    select ctid from tq_emails
    where state = 'ready' and id > :low_water and not exists (select 1 from tq__paused where name = 'tq_emails' and until > coalesce(cast(:now as timestamptz), statement_timestamp()))
    order by id
    limit :n
    for update skip locked
))
returning
    id, cast(payload as text), cast(headers as text), attempts, pushed_at, popped_at, lease_until, priority, group_key, dedup_key,
    due_at, cast(errors as text);
