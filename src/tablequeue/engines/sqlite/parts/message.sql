-- What becomes of a message: its errors, and its origin in another queue.

-- name: errors_and
-- The errors of a row and one more, as `with_error` of model/attempts.py.
json_insert(
    case
        when json_array_length(errors) >= {most_errors} then (
            select json_group_array(json(value)) from json_each(errors)
            where key < {first_errors} or key >= json_array_length(errors) - {last_errors}
        )
        else coalesce(errors, '[]')
    end,
    '$[#]', json_object(
        'number', coalesce(json_extract(errors, '$[#-1].number'), json_array_length(errors), 0) + 1,
        'attempt', attempts, 'at', {now}, 'consumer', consumer, 'error', {error}
    )
)

-- name: origin_header
-- The headers of a dead letter that moves to another queue, with its origin.
json_set(coalesce(headers, json_object()), '$."tablequeue-origin"',
    json_object('queue', :origin, 'table', '{table}', 'id', id,
    'attempts', attempts, 'key', dedup_key))

-- name: origin_key
-- The key in the origin of such a message.
json_extract(headers, '$."tablequeue-origin".key')
