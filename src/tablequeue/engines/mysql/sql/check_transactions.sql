-- Transactions that have been open for a minute or longer, the oldest first: connection, user, seconds. Needs the right
-- PROCESS. Locks: none.
select
    trx_mysql_thread_id, coalesce(session.user, ''), timestampdiff(second, trx_started, now())
from information_schema.innodb_trx
left join information_schema.processlist as session on session.id = trx_mysql_thread_id
where trx_started < now() - interval 60 second and trx_mysql_thread_id <> connection_id()
order by trx_started
limit 10;
