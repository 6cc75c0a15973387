-- A word after a colon is a parameter; with --values there are examples, for psql.

-- Push a batch of messages in one statement, in the order of the array: all of them, or none.
-- Returns the ids, and as in push, whether waiting consumers must be notified from another connection.
-- Locks: none that another transaction waits for; NOTIFY's, as in push. A crash before the commit leaves nothing.
with pushed as (
    insert into tq_events (pushed_at, producer, group_key, headers, payload)
    select
        coalesce(cast(:now as timestamptz), statement_timestamp()), cast(:producer as text), cast(:group as text), cast(:headers as json),
        cast(payload as json)
    from unnest(cast(:payloads as text[])) with ordinality as batch (payload, place)
    order by place
    returning id
)
select id, (select case
    when :within and pg_advisory_xact_lock_shared(hashtextextended('tq_events', 8318836323)) is null then null
    when pg_try_advisory_lock(hashtextextended('tq_events', 8318836321)) then not pg_advisory_unlock(hashtextextended('tq_events', 8318836321))
    when :within then true
    when not pg_try_advisory_xact_lock(hashtextextended('tq_events', 8318836322) # cast(extract(epoch from statement_timestamp()) * 100 as bigint)) then false
    else pg_notify('tq_events', '') is null end) as waited_for from pushed;
