-- For sqlcmd, as it is. Run it between `begin transaction` and `commit transaction`: all or nothing, with its locks held to the end.

-- Drop the procedures of a queue that exist.
if object_id(N'tq_emails_read_history', N'P') is not null drop procedure tq_emails_read_history;
if object_id(N'tq_emails_peek', N'P') is not null drop procedure tq_emails_peek;
if object_id(N'tq_emails_stats', N'P') is not null drop procedure tq_emails_stats;
if object_id(N'tq_emails_extend', N'P') is not null drop procedure tq_emails_extend;
if object_id(N'tq_emails_release', N'P') is not null drop procedure tq_emails_release;
if object_id(N'tq_emails_fail', N'P') is not null drop procedure tq_emails_fail;
if object_id(N'tq_emails_complete', N'P') is not null drop procedure tq_emails_complete;
if object_id(N'tq_emails_take', N'P') is not null drop procedure tq_emails_take;
if object_id(N'tq_emails_pop', N'P') is not null drop procedure tq_emails_pop;
if object_id(N'tq_emails_cancel', N'P') is not null drop procedure tq_emails_cancel;
if object_id(N'tq_emails_push_each', N'P') is not null drop procedure tq_emails_push_each;
if object_id(N'tq_emails_push_many', N'P') is not null drop procedure tq_emails_push_many;
if object_id(N'tq_emails_push', N'P') is not null drop procedure tq_emails_push;
if object_id(N'tq_emails__cancel_held', N'P') is not null drop procedure tq_emails__cancel_held;
if object_id(N'tq_emails__sweep', N'P') is not null drop procedure tq_emails__sweep;
if object_id(N'tq_emails__peek_scheduled', N'P') is not null drop procedure tq_emails__peek_scheduled;
if object_id(N'tq_emails__peek_ready', N'P') is not null drop procedure tq_emails__peek_ready;
if object_id(N'tq_emails__peek_in_progress', N'P') is not null drop procedure tq_emails__peek_in_progress;
if object_id(N'tq_emails__peek_dead', N'P') is not null drop procedure tq_emails__peek_dead;
if object_id(N'tq_emails__peek_blocked', N'P') is not null drop procedure tq_emails__peek_blocked;
if object_id(N'tq_emails__outdated', N'P') is not null drop procedure tq_emails__outdated;
if object_id(N'tq_emails__insert_each', N'P') is not null drop procedure tq_emails__insert_each;
if object_id(N'tq_emails__expired', N'P') is not null drop procedure tq_emails__expired;
if object_id(N'tq_emails__due', N'P') is not null drop procedure tq_emails__due;

go

-- Drop the table of reported progress, if there is one.
-- In one transaction with the queue: a crash leaves all or nothing. On MariaDB and MySQL it commits by itself, and the
-- next drop of this name drops what a crash leaves.
drop table if exists tq_emails__progress;

go

-- Drop a queue's table, with its triggers; what was in it is gone. It waits for transactions that use the table.
-- In one transaction with the history: a crash leaves all or nothing. On MariaDB and MySQL, the catalogue forgot the
-- queue before: a crash leaves tables that the next create of this name drops.
drop table if exists tq_emails;

go

-- Drop the table of the results. In one transaction with the queue, where the database can.
drop table if exists tq_emails__results;

go

-- Drop a queue's history, if it keeps one: another queue may have a table of that name.
drop table if exists tq_emails_history;

go

-- Drop the places of a queue that limits its messages in progress.
-- In one transaction with the queue: a crash leaves all or nothing. On MariaDB and MySQL it commits by itself, and the
-- next drop of this name drops what a crash leaves.
drop table if exists tq_emails__slots;

go

-- Drop the rate of a queue that limits its claims.
-- In one transaction with the queue: a crash leaves all or nothing. On MariaDB and MySQL it commits by itself, and the
-- next drop of this name drops what a crash leaves.
drop table if exists tq_emails__rate;

go

-- Drop the table of the keys. In one transaction with the queue, where the database can.
drop table if exists tq_emails__keys;

go

-- Drop the tables that streams, bulk writes and moves made beside a queue, if there are any.
-- In one transaction with the queue: a crash leaves all or nothing. On MariaDB and MySQL each commits by itself, and
-- the next drop of this name drops what a crash leaves.
drop table if exists tq_emails__streams;
drop table if exists tq_emails__staged;
drop table if exists tq_emails__writers;
drop table if exists tq_emails__moving;
drop table if exists tq_emails__moved;

go

-- Hand out the messages of the queue again. Index: the primary key. Locks: the row.
delete from tq__paused where name = 'tq_emails';

go

-- Note the table of a queue, in the transaction that drops it: nothing new gets its name.
insert into tq__dropped (name)
select 'tq_emails' where not exists (select 1 from tq__dropped where name = 'tq_emails');

go

-- Take a queue out of the catalogue, in the transaction that drops its tables.
delete from tq_queues where name = cast('emails' as nvarchar(255));
