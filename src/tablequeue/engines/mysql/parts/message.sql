-- What becomes of a message: its errors, and its origin in another queue.

-- name: errors_and
-- The errors of a row and one more, as `with_error` of model/attempts.py.
json_array_append(
    case
        when json_length(errors) >= {most_errors} then json_extract(
            errors,
            {error_places}
        )
        else coalesce(errors, '[]')
    end,
    '$', json_object(
        'number', cast(coalesce(
            json_extract(errors, concat('$[', json_length(errors) - 1, '].number')), json_length(errors), 0
        ) as unsigned) + 1,
        'attempt', attempts, 'at', cast({now} as char), 'consumer', consumer, 'error', {error}
    )
)

-- name: origin_header
-- The headers of a dead letter that moves to another queue, with its origin.
json_set(coalesce(headers, json_object()), '$."tablequeue-origin"', json_object(
    'queue', :origin, 'table', '{table}', 'id', message.id, 'attempts', attempts,
    'key', convert(dedup_key using utf8mb4)))

-- name: origin_key
-- The key in the origin of such a message.
if(json_type(json_extract(headers, '$."tablequeue-origin".key')) = 'STRING',
    json_unquote(json_extract(headers, '$."tablequeue-origin".key')), null)
