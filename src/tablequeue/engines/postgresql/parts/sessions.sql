-- Parts of the texts of sessions.

-- name: place
-- A temporary table of that name is no catalogue.
coalesce(
    (
        select there.nspname from pg_class as found join pg_namespace as there on there.oid = found.relnamespace
        where found.oid = to_regclass('tq_queues') and found.relpersistence <> 't'
    ),
    current_schema()
)

-- name: absence
set_config(
    '{name}',
    case when current_setting('{name}') = '0' and strpos(cast(:options as text), '{name}') = 0 then '30s'
    else current_setting('{name}') end,
    false
)
