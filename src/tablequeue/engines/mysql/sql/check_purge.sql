-- Old versions of rows that wait to be cleaned up, where they are very many. Needs the right PROCESS. Locks: none.
select `count`
from information_schema.innodb_metrics
where name = 'trx_rseg_history_len' and `count` > 100000;
