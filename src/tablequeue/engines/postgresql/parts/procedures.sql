-- What the stored procedures have in common.

-- name: in_turns
-- The rest of a query that claims messages in turn: it notes the group that was served last, and returns the
-- messages.
), noted as (
    select set_config('tablequeue.{ring_of_session}', cast(slot as text), false)
    from (
        select slot from claimed
        order by row_number() over (partition by slot order by id) desc, slot <= served desc,
            slot desc
        limit 1
    ) as last
)
select
    {claimed_names}
from claimed
where exists (select 1 from noted)
order by row_number() over (partition by slot order by id), slot <= served, slot;

-- name: checked_payload
if p_payload is null then
    raise exception using errcode = 'TQ001', message = 'The payload is null.', hint = 'Give the message one.';
end if;
-- [json]
perform {queue}_characters(p_payload);
-- [end]

-- name: checked_headers
if json_typeof(p_headers) <> 'object' then
    raise exception using errcode = 'TQ001', message = 'The headers are no JSON object.',
        hint = 'Give an object, or leave them out.';
end if;
perform {queue}_characters(p_headers);

-- name: checked_seconds
-- {of} is a duration, which errors call {named}.
if {of} is null or not {of} between 0 and {longest} then
    raise exception using errcode = 'TQ001',
        message = '{named} is ' || coalesce(cast({of} as text), 'null') || '.',
        hint = 'Give seconds, from 0 to 100 years.';
end if;

-- name: checked_now
if not isfinite(p_now) then
    raise exception using errcode = 'TQ001', message = 'now is ' || p_now || '.',
        hint = 'Give a time, or leave it out.';
end if;

-- name: is_within
-- Whether the function runs in a transaction of the caller's, as far as it can know: that has written, or is older.
txid_current_if_assigned() is not null or now() < statement_timestamp() - interval '1 s'
