-- What becomes of a message: its errors, and its origin in another queue.

-- name: errors_and
-- The errors of a row and one more, as `with_error` of model/attempts.py.
json_modify(
    case
        when (select count(*) from openjson(errors)) >= {most_errors} then (
            select kept.number, kept.attempt, kept.at, kept.consumer, kept.error
            from openjson(errors) as entry
            cross apply openjson(entry.value) with (
                number int, attempt int, at nvarchar(33), consumer nvarchar(512), error nvarchar(max)
            ) as kept
            where cast(entry.[key] as int) < {first_errors}
                or cast(entry.[key] as int) >= (select count(*) from openjson(errors)) - {last_errors}
            order by cast(entry.[key] as int)
            for json path, include_null_values
        )
        else coalesce(errors, N'[]')
    end,
    'append $', json_query((
        select
            coalesce((
                select top (1) coalesce(last.number, cast(entry.[key] as int) + 1)
                from openjson(errors) as entry
                cross apply openjson(entry.value) with (number int) as last
                order by cast(entry.[key] as int) desc
            ), 0) + 1 as number,
            attempts as attempt, convert(nvarchar(33), @now, 126) as at, consumer, @error as error
        for json path, without_array_wrapper, include_null_values
    ))
)

-- name: origin_header
-- The headers of a dead letter that moves to another queue, with its origin.
json_modify(coalesce(headers, N'{}'), N'$."tablequeue-origin"', json_query((
    select
        @origin as queue, '{table}' as [table], id, attempts,
        convert(nvarchar(510), dedup_key) as [key]
    for json path, without_array_wrapper, include_null_values
)))

-- name: origin_key
-- The key in the origin of such a message.
convert(varbinary(1020), convert(nvarchar(510), json_value(headers, N'$."tablequeue-origin".key')))
