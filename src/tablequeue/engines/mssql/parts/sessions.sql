-- Parts of the texts of sessions.

-- name: place
coalesce(object_schema_name(object_id(N'tq_queues', N'U')), schema_name())
