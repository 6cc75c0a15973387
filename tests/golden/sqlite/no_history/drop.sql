-- Drop a queue's table; what was in it is gone. In one transaction with the history: a crash leaves all or nothing.
drop table if exists tq_emails;

-- Take a queue out of the catalogue, in the transaction that drops its tables.
delete from tq_queues where name = :name;
