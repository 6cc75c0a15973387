-- Claim the next range of up to :n messages under a new lease: one row for all of them.
-- Index: the primary keys. Locks: the database, for the length of the transaction.
-- A consumer that dies leaves its range in progress; sweep sets its messages apart when the lease has expired.
insert into {ranges} (first_offset, last_offset, messages, ids_sum, token, consumer, popped_at, lease_until)
select
    first, last, last - first + 1, (first + last) * (last - first + 1) / 2, :token, :consumer, {now},
    {now} + cast(:lease * 1000000 as integer)
from (
    select first, min(first + :n - 1, (select max(id) from {log})) as last
    from (
        select max(last_offset + 1, (select min(id) from {log})) as first from {ranges} order by id desc limit 1
    )
)
where last >= first and {unpaused};
select
    {claimed of log with
        attempts = 1
        popped_at = popped_at
        lease_until = lease_until
        priority = 0
        dedup_key = null
        due_at = null
        errors = null}
from {ranges} as ranges
join {log} as log on log.id between first_offset and last_offset
where changes() > 0 and ranges.id = last_insert_rowid()
order by log.id;
