-- Sessions in this database without the settings that filtered indexes need: session, program. Locks: none.
select top (10) session_id, coalesce(program_name, N'')
from sys.dm_exec_sessions
where database_id = db_id() and is_user_process = 1
    and (quoted_identifier = 0 or ansi_nulls = 0 or ansi_padding = 0 or ansi_warnings = 0
        or concat_null_yields_null = 0)
order by session_id;
