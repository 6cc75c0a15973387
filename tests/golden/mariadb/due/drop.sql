-- Drop a queue's table with its triggers; what was in it is gone. It waits for transactions that use the table.
-- The catalogue forgot the queue before: a crash leaves tables that the next create of this name drops.
drop table if exists tq_emails;

-- Drop a queue's history, if it keeps one: another queue may have a table of that name.
drop table if exists tq_emails_history;

-- Take a queue out of the catalogue, before its tables are dropped.
delete from tq_queues where name = :name;
