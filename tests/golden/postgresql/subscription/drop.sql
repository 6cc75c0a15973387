-- For psql, as it is. With `psql --single-transaction` it is all or nothing.

-- Drop the procedures of a queue that exist.
drop function if exists tq_events__s1_history;
drop function if exists tq_events__s1_peek;
drop function if exists tq_events__s1_stats;
drop function if exists tq_events__s1_extend;
drop function if exists tq_events__s1_release;
drop function if exists tq_events__s1_fail;
drop function if exists tq_events__s1_complete;
drop function if exists tq_events__s1_take;
drop function if exists tq_events__s1_pop;
drop function if exists tq_events__s1_push_each;
drop function if exists tq_events__s1_push_many;
drop function if exists tq_events__s1_push;
drop function if exists tq_events__s1_unpack;
drop function if exists tq_events__s1_sweep;
drop function if exists tq_events__s1_remove;
drop function if exists tq_events__s1_notify;
drop function if exists tq_events__s1_claim;
drop function if exists tq_events__s1_check;

-- Drop the ranges of a subscription. In one transaction with its queue: a crash leaves all or nothing.
drop function if exists tq_events__s1__ranges_claim;
drop table if exists tq_events__s1__ranges;

-- Drop a queue's table and its packs; what was in them is gone. In one transaction with the history: a crash leaves all
-- or nothing.
drop view if exists tq_events__s1__packed;
drop table if exists tq_events__s1__packs;
drop table if exists tq_events__s1;

-- Drop a queue's history, if it keeps one: another queue may have a table of that name.
drop table if exists tq_events__s1_history;

-- Drop the tables that streams and bulk writes made beside a queue, if there are any.
-- In one transaction with the queue: a crash leaves all or nothing.
drop table if exists tq_events__s1__streams;
drop table if exists tq_events__s1__parts;
drop table if exists tq_events__s1__writers;

-- Take a queue out of the catalogue, in the transaction that drops its tables.
delete from tq_queues where name = 'events/mail';
