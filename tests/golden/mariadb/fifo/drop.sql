-- For mariadb or mysql, as it is. Each DDL statement commits: after a failure, drop what was created with the SQL of `drop`.

-- Drop the procedures of a queue that exist.
drop procedure if exists tq_emails_history;
drop procedure if exists tq_emails_peek;
drop procedure if exists tq_emails_stats;
drop procedure if exists tq_emails_extend;
drop procedure if exists tq_emails_release;
drop procedure if exists tq_emails_fail;
drop procedure if exists tq_emails_complete;
drop procedure if exists tq_emails_wait;
drop procedure if exists tq_emails_take;
drop procedure if exists tq_emails_pop;
drop procedure if exists tq_emails_cancel;
drop procedure if exists tq_emails_push_each;
drop procedure if exists tq_emails_push_many;
drop procedure if exists tq_emails_push;
drop procedure if exists tq_emails_undo;
drop procedure if exists tq_emails_sweep;
drop procedure if exists tq_emails_push_all;
drop procedure if exists tq_emails_push_one;
drop procedure if exists tq_emails_options;
drop procedure if exists tq_emails_list;
drop procedure if exists tq_emails_insert;
drop procedure if exists tq_emails_find;
drop procedure if exists tq_emails_cancel_held;
drop procedure if exists tq_emails_begin;

-- Drop the table of reported progress, if there is one.
-- In one transaction with the queue: a crash leaves all or nothing. On MariaDB and MySQL it commits by itself, and the
-- next drop of this name drops what a crash leaves.
drop table if exists tq_emails__progress;

-- Drop a queue's table, with its triggers; what was in it is gone. It waits for transactions that use the table.
-- In one transaction with the history: a crash leaves all or nothing. On MariaDB and MySQL, the catalogue forgot the
-- queue before: a crash leaves tables that the next create of this name drops.
drop table if exists tq_emails;

-- Drop the table of the keys of live messages.
drop table if exists tq_emails__live_keys;

-- Drop the table of the results. In one transaction with the queue, where the database can.
drop table if exists tq_emails__results;

-- Drop a queue's history, if it keeps one: another queue may have a table of that name.
drop table if exists tq_emails_history;

-- Drop the places of a queue that limits its messages in progress.
-- In one transaction with the queue: a crash leaves all or nothing. On MariaDB and MySQL it commits by itself, and the
-- next drop of this name drops what a crash leaves.
drop table if exists tq_emails__slots;

-- Drop the rate of a queue that limits its claims.
-- In one transaction with the queue: a crash leaves all or nothing. On MariaDB and MySQL it commits by itself, and the
-- next drop of this name drops what a crash leaves.
drop table if exists tq_emails__rate;

-- Drop the table of the keys. In one transaction with the queue, where the database can.
drop table if exists tq_emails__keys;

-- Drop the tables that streams, bulk writes and moves made beside a queue, if there are any.
-- In one transaction with the queue: a crash leaves all or nothing. On MariaDB and MySQL each commits by itself, and
-- the next drop of this name drops what a crash leaves.
drop table if exists tq_emails__streams;
drop table if exists tq_emails__staged;
drop table if exists tq_emails__writers;
drop table if exists tq_emails__moving;
drop table if exists tq_emails__moved;

-- Hand out the messages of the queue again. Index: the primary key. Locks: the row.
delete from tq__paused where name = 'tq_emails';

-- Note the table of a queue, before the catalogue forgets the queue: nothing new gets its name.
insert ignore into tq__dropped (name) values ('tq_emails');

-- Take a queue out of the catalogue, in the transaction that drops its tables; on MariaDB and MySQL before they are
-- dropped.
delete from tq_queues where name = 'emails';
