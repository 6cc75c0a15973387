-- For sqlite3, as it is. Between `begin;` and `commit;` it is all or nothing.

-- Drop the log of a topic; what was in it is gone.
drop table if exists tq_events;

-- Take a queue out of the catalogue, in the transaction that drops its tables.
delete from tq_queues where name = 'events';
