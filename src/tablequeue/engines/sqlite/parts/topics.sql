-- What the texts of topics and subscriptions have in common.

-- name: finished_messages
-- The messages that a range has finished; see `create_ranges`.
(
    coalesce(json_array_length(left_ids), case when finished_at is not null then messages else 0 end)
    - json_array_length(coalesce(apart_ids, '[]'))
)
