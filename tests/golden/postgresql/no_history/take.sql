-- A word after a colon is a parameter; with --values there are examples, for psql.

-- Remove up to :n ready messages, for this queue keeps no history.
-- Index: tq_emails__ready. Locks: the rows, until the transaction ends; those that another one has are passed over.
-- A rollback puts all of them back, a crash before the commit too.
delete from tq_emails
where id = any(array(
    select id from tq_emails
    where state = 'ready' and id > :low_water
    order by id
    limit :n
    for update skip locked
))
returning
    id, payload, cast(headers as text), attempts + 1, pushed_at, coalesce(cast(:now as timestamptz), statement_timestamp()), cast(null as timestamptz), priority, group_key,
    dedup_key, due_at;
