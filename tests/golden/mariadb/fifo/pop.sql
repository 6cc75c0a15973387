-- A word after a colon is a parameter; with --values there are examples, for mariadb or mysql.

-- Claim one message under a new lease: it is claimed by one consumer only, because SKIP LOCKED skips the rows that
-- another claim has locked. One packet in autocommit: whether claims are paused, the update, then the row of the id
-- that it remembered, without a lock. The update would lock what it reads of the pauses, and so wait for a transaction
-- that pauses or resumes. The last one asks for LAST_INSERT_ID() in SQL, because MariaDB's response to the update lacks
-- it if the table has triggers.
-- A claim of several messages is another packet, of claim_limit, claim_many and claimed.
-- It is not read if nothing was claimed: the id would be that of a claim before, which in the second claim of a batch
-- has the same token.
-- The state is checked again: a server that reads SKIP LOCKED and locks nothing must not claim for two.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- Index: tq_emails__state, which has the order of the queue: if the rows had to be sorted, all of them would be locked. It
-- is forced, because with outdated statistics the optimizer may read the primary key instead. If the order is that of
-- the ids, it begins at :low_water, so that dead entries before it are not walked again (low_water.py).
-- A consumer that dies leaves its message in progress; sweep returns it when the lease has expired.
select count(*) into @tq_paused from tq__paused where name = 'tq_emails' and until > coalesce(cast(:now as datetime(6)), utc_timestamp(6));
update (
    select last_insert_id(id) as claimed from tq_emails force index (tq_emails__state)
    where state = 'ready' and sweep_at is null and id > :low_water and @tq_paused = 0
    order by id
    limit 1
    for update skip locked
) as next
straight_join tq_emails as message force index (primary) on message.id = next.claimed
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = coalesce(cast(:now as datetime(6)), utc_timestamp(6)),
    first_popped_at = coalesce(first_popped_at, coalesce(cast(:now as datetime(6)), utc_timestamp(6))),
    lease_until = coalesce(cast(:now as datetime(6)), utc_timestamp(6)) + interval :lease second
where state = 'ready';
select
    id, payload, headers, attempts, pushed_at, popped_at, lease_until, priority,
    convert(group_key using utf8mb4) as group_key, convert(dedup_key using utf8mb4) as dedup_key, due_at, errors
from tq_emails
where row_count() > 0 and id = last_insert_id() and token = :token;
