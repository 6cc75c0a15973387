-- Push a batch of messages with options of their own, in the order of the arrays; null for each whose key a message
-- has already; and whether consumers wait, as in push. Ids are drawn before, to tell which row got which; those of
-- refused rows stay gaps.
-- Index: {table}__key. Locks: a row waits for another transaction that is pushing the same key.
with batch as materialized (
    select nextval((select cast(pg_get_serial_sequence('{queue}', 'id') as regclass))) as id, entry.*
    from (
        select * from unnest(
            cast(:payloads as {array_type}[]), cast(:headers as text[]), cast(:priorities as integer[]),
            cast(:groups as text[]), cast(:keys as text[]), cast(:dues as timestamptz[]), cast(:delays as float8[])
            -- [expires]
            , cast(:each_expires as float8[])
            -- [end]
        ) with ordinality as entry (payload, headers, priority, group_key, dedup_key, due, delay{lifetime}, place)
        order by place
    ) as entry
), pushed as (
    insert into {queue} (
        id, payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{expires_at}
    )
    select
        id, cast(payload as {payload_type}), cast(headers as json), cast(:producer as text),
        priority, group_key, dedup_key, {now}, coalesce(due, {now} + delay * interval '1 second'),
        case
            when coalesce(due, {now} + delay * interval '1 second') > {now} then '{pushed_scheduled}'
            else '{pushed_ready}'
        end{own_until}
    from batch
    order by place
    on conflict (dedup_key) where dedup_key is not null do nothing
    returning id
)
select pushed.id, {waited_for} as waited_for from batch left join pushed on pushed.id = batch.id order by batch.place;
