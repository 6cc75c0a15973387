-- A word after a colon is a parameter; with --values there are examples, for sqlite3.

-- Claim up to :n ready messages under a new lease; each is claimed by one consumer only.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- Index: tq_events__s1__ready. Locks: the database, for the length of the statement.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
update tq_events__s1
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    first_popped_at = coalesce(first_popped_at, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)),
    lease_until = coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) + cast(:lease * 1000000 as integer)
where id in (select id from tq_events__s1 where state = 'ready' order by id limit :n)
returning
    id, payload, headers, attempts, pushed_at, popped_at, lease_until, priority, group_key, dedup_key, due_at;

-- Claim the next range of up to :n messages under a new lease: one row for all of them.
-- Index: the primary keys. Locks: the database, for the length of the transaction.
-- A consumer that dies leaves its range in progress; sweep sets its messages apart when the lease has expired.
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, token, consumer, popped_at, lease_until)
select
    first, last, last - first + 1, (first + last) * (last - first + 1) / 2, :token, :consumer, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) + cast(:lease * 1000000 as integer)
from (
    select first, min(first + :n - 1, (select max(id) from tq_events)) as last
    from (
        select max(last_offset + 1, (select min(id) from tq_events)) as first from tq_events__s1__ranges order by id desc limit 1
    )
)
where last >= first;
select
    log.id, log.payload, log.headers, 1, log.pushed_at, popped_at, lease_until, 0, log.group_key, null, null
from tq_events__s1__ranges as ranges
join tq_events as log on log.id between first_offset and last_offset
where changes() > 0 and ranges.id = last_insert_rowid()
order by log.id;
