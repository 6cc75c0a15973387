-- A word after a colon is a parameter; with --values there are examples, for mariadb or mysql.

-- The library runs these statements one by one, in one transaction. It takes parameters of the later ones from the rows
-- of the earlier ones, and leaves out a statement that has nothing to do.
-- The procedure tq_emails_complete does all of it: see `tablequeue sql procedures`.

-- Complete the messages of :ids that are held under :token: they move to the history, or are deleted.
-- The first statement finds those that are held. All of them are one packet. A statement that deletes one message needs
-- no first one: the number of rows is enough.
-- Index: the primary key. Locks: the rows. A crash leaves all of them completed, or none.
select message.id
from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id and token = :token
for update;
insert into tq_emails_history (
    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
    consumer, headers, errors, payload
)
select
    message.id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, coalesce(cast(:now as datetime(6)), utc_timestamp(6)), group_key, dedup_key,
    producer, consumer, headers, errors, payload
from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id and token = :token
for update;
delete tq_emails, tq_emails__live_keys
from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails force index (primary) on tq_emails.id = given.id and token = :token
left join tq_emails__live_keys force index (primary) on tq_emails__live_keys.dedup_key = tq_emails.dedup_key;
