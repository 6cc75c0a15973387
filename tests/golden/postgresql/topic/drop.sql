-- For psql, as it is. With `psql --single-transaction` it is all or nothing.

-- Drop the procedures of a queue that exist.
drop function if exists tq_events_peek;
drop function if exists tq_events_stats;
drop function if exists tq_events_fail;
drop function if exists tq_events_complete;
drop function if exists tq_events_take;
drop function if exists tq_events_pop;
drop function if exists tq_events_push_each;
drop function if exists tq_events_push_many;
drop function if exists tq_events_push;
drop function if exists tq_events_sweep;
drop function if exists tq_events_remove;
drop function if exists tq_events_notify;
drop function if exists tq_events_claim;
drop function if exists tq_events_check;

-- Drop the log of a topic; what was in it is gone. In one transaction: a crash leaves all or nothing.
drop function if exists tq_events__sequence;
drop table if exists tq_events__holes;
drop table if exists tq_events__runs;
drop table if exists tq_events;

-- Drop the tables that streams and bulk writes made beside a queue, if there are any.
-- In one transaction with the queue: a crash leaves all or nothing.
drop table if exists tq_events__streams;
drop table if exists tq_events__parts;
drop table if exists tq_events__writers;

-- Take a queue out of the catalogue, in the transaction that drops its tables.
delete from tq_queues where name = 'events';
