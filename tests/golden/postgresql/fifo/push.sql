-- A word after a colon is a parameter; with --values there are examples, for psql.

-- Push one message: it is ready, or scheduled if it is due later.
-- Nothing is pushed if a live message has its :key. Returns the id, and whether waiting consumers must be notified from
-- another connection; see notify.
-- Locks: none that another transaction waits for; and, if consumers wait, that of NOTIFY, for the length of the commit.
-- A crash before the commit leaves nothing.
with pushed as (
    insert into tq_emails (
        payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state
    )
    values (
        cast(:payload as json), cast(:headers as json), cast(:producer as text),
        cast(:priority as integer), cast(:group as text), cast(:key as text), coalesce(cast(:now as timestamptz), statement_timestamp()),
        coalesce(cast(:due as timestamptz), coalesce(cast(:now as timestamptz), statement_timestamp()) + cast(:delay as float8) * interval '1 second'),
        case
            when coalesce(cast(:due as timestamptz), coalesce(cast(:now as timestamptz), statement_timestamp()) + cast(:delay as float8) * interval '1 second') > coalesce(cast(:now as timestamptz), statement_timestamp())
                then 'scheduled'
            else 'ready'
        end
    )
    on conflict (dedup_key) where dedup_key is not null do nothing
    returning id
)
select id, (select case
    when :within and pg_advisory_xact_lock_shared(hashtextextended('tq_emails', 8318836323)) is null then null
    when pg_try_advisory_lock(hashtextextended('tq_emails', 8318836321)) then not pg_advisory_unlock(hashtextextended('tq_emails', 8318836321))
    when :within then true
    when not pg_try_advisory_xact_lock(
        hashtextextended('tq_emails', 8318836322) # cast(extract(epoch from statement_timestamp()) * 100 as bigint)
    ) then false
    else pg_notify('tq_emails', '') is null end) as waited_for from pushed;
