-- A word after a colon is a parameter; with --values there are examples, for mariadb or mysql.

-- The library runs these statements one by one, in one transaction. It takes parameters of the later ones from the rows
-- of the earlier ones, and leaves out a statement that has nothing to do.
-- The library takes in its caller's transaction. There it finds the messages on a second connection (`claim_find`), so it
-- locks no gap at REPEATABLE READ. This script does not: run it at READ COMMITTED.
-- The procedure tq_emails_take does all of it: see `tablequeue sql procedures`.

-- Move up to :n ready messages to the history: finished, or under :token until they are completed. If the queue
-- keeps no history, delete them.
-- Index: tq_emails__state, then the primary key. Locks: the rows, until the transaction ends; locked rows are skipped. A
-- rollback puts all of them back, a crash before the commit too.
select
    id, payload, headers, attempts + 1, pushed_at, coalesce(cast(:now as datetime(6)), utc_timestamp(6)), cast(null as datetime(6)), priority,
    convert(group_key using utf8mb4) as group_key, convert(dedup_key using utf8mb4) as dedup_key, due_at, errors
from tq_emails force index (tq_emails__state)
where state = 'ready' and sweep_at is null and id > :low_water and not exists (select 1 from tq__paused where name = 'tq_emails' and until > coalesce(cast(:now as datetime(6)), utc_timestamp(6)))
order by id
limit :n
for update skip locked;
insert into tq_emails_history (
    id, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key,
    producer, consumer, headers, errors, payload
)
select
    message.id, attempts + 1, priority, :token, pushed_at, due_at, coalesce(first_popped_at, :popped_at), :popped_at,
    case when :token is null then cast(:popped_at as datetime(6)) end, group_key, dedup_key, producer, :consumer,
    headers, errors, payload
from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
where state = 'ready'
for update;
delete tq_emails, tq_emails__live_keys
from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails force index (primary) on tq_emails.id = given.id
left join tq_emails__live_keys force index (primary) on tq_emails__live_keys.dedup_key = tq_emails.dedup_key
where state = 'ready';
