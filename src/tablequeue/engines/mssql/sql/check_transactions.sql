-- Transactions in this database that have been open for a minute or longer, the oldest first: session, program,
-- seconds. Needs the right VIEW SERVER STATE to see those of others. Locks: none.
select top (10)
    open_one.session_id, coalesce(session.program_name, N''),
    datediff_big(second, begun.transaction_begin_time, sysdatetime())
from sys.dm_tran_session_transactions as open_one
join sys.dm_tran_active_transactions as begun on begun.transaction_id = open_one.transaction_id
join sys.dm_tran_database_transactions as here
    on here.transaction_id = open_one.transaction_id and here.database_id = db_id()
left join sys.dm_exec_sessions as session on session.session_id = open_one.session_id
where open_one.session_id <> @@spid and begun.transaction_begin_time < dateadd(second, -60, sysdatetime())
order by begun.transaction_begin_time;
