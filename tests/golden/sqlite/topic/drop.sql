-- For sqlite3, as it is. Between `begin;` and `commit;` it is all or nothing.

-- Drop the log of a topic; what was in it is gone.
drop table if exists tq_events;

-- Drop the tables that streams and bulk writes made beside a queue, if there are any.
-- In one transaction with the queue: a crash leaves all or nothing.
drop table if exists tq_events__streams;
drop table if exists tq_events__staged;
drop table if exists tq_events__writers;

-- Take a queue out of the catalogue, in the transaction that drops its tables.
delete from tq_queues where name = 'events';
