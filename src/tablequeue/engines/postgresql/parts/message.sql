-- What becomes of a message: its errors, and its origin in another queue.

-- name: errors_and
-- The errors of a row and one more, as `with_error` of model/attempts.py.
case
    when jsonb_array_length(errors) >= {most_errors}
        then jsonb_path_query_array(errors, '$[0 to {last_first}]')
            || jsonb_path_query_array(errors, '$[last - {before_last} to last]')
    else coalesce(errors, '[]')
end || jsonb_build_array(jsonb_build_object(
    'number', coalesce(cast(errors -> -1 ->> 'number' as integer), jsonb_array_length(errors), 0) + 1,
    'attempt', attempts, 'at', {now}, 'consumer', consumer, 'error', cast({error} as text)
))

-- name: origin_header
-- The headers of a dead letter that moves to another queue, with its origin.
cast(coalesce(cast(headers as jsonb), jsonb_build_object()) || jsonb_build_object('tablequeue-origin',
    jsonb_build_object('queue', cast(:origin as text), 'table', '{table}', 'id', id,
    'attempts', attempts, 'key', dedup_key)) as json)

-- name: origin_key
-- The key in the origin of such a message.
headers -> 'tablequeue-origin' ->> 'key'

-- name: waited_for
-- Notifies waiting consumers at the commit, or returns that another connection must: see listener.py.
(select case
    when :within and pg_advisory_xact_lock_shared({pushing_lock}) is null then null
    when pg_try_advisory_lock({waiting_lock}) then not pg_advisory_unlock({waiting_lock})
    when :within then true
    when not pg_try_advisory_xact_lock(
        {notifying_lock} # cast(extract(epoch from statement_timestamp()) * 100 as bigint)
    ) then false
    else pg_notify('{channel}', '') is null end)
