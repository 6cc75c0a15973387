-- Push a batch of messages, each with a group and headers of its own: all of them, or none. As topic_push_many.
with pushed as (
    insert into {log} (pushed_at, producer, group_key, headers, payload)
    select
        {now}, cast(:producer as text), group_key, cast(headers as json),
        cast(payload as {payload_type})
    from unnest(
        cast(:payloads as {array_type}[]), cast(:groups as text[]), cast(:headers as text[])
    ) with ordinality as batch (payload, group_key, headers, place)
    order by place
    returning id
)
select id, {waited_for} as waited_for from pushed;
