-- Sessions: the database of the queues, and what a caller's session must not set.

-- name: check_session
-- A setting of a caller's session that changes what our statements do or return: its name, value and right value.
-- Asked once for each connection. It reads no table, so a transaction gets no snapshot by it.
select wrong.name, wrong.found, wrong.good
from (
    select 'sql_select_limit' as name, concat(@@sql_select_limit) as found, 'default' as good,
        @@sql_select_limit < 18446744073709551615 as bad
    union all select 'sql_safe_updates', concat(@@sql_safe_updates), '0', @@sql_safe_updates
    union all select 'timestamp', concat(@@timestamp), 'default', abs(timestampdiff(second, now(6), sysdate(6))) > 5
    union all select 'foreign_key_checks', concat(@@foreign_key_checks), '1', not @@foreign_key_checks
    union all select 'unique_checks', concat(@@unique_checks), '1', not @@unique_checks
    union all select 'character_set_client', @@character_set_client, 'utf8mb4', @@character_set_client <> 'utf8mb4'
    union all
    select 'character_set_connection', @@character_set_connection, 'utf8mb4', @@character_set_connection <> 'utf8mb4'
    union all
    select 'character_set_results', coalesce(@@character_set_results, 'null'), 'utf8mb4',
        coalesce(@@character_set_results, 'binary') not in ('utf8mb4', 'binary')
    union all select 'sql_mode', @@sql_mode, 'default', find_in_set('EMPTY_STRING_IS_NULL', @@sql_mode) > 0
) as wrong
where wrong.bad
limit 1;

-- name: place
-- The database of the queues, if none is named: that of the session which comes first. Afterwards each statement names
-- it.
select database();
