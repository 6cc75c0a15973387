-- For sqlcmd, as it is. Run it between `begin transaction` and `commit transaction`: all or nothing, with its locks held to the end.

-- The creators' lock: one at a time makes tables in a database, until its transaction ends; without a transaction it
-- is refused (-999). IF OBJECT_ID ... IS NULL alone lets two through at once, and no row lock can say it: there is no
-- row yet.
declare @granted int;
exec @granted = sp_getapplock
    @Resource = N'tablequeue', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
if @granted = -999
    throw 51001, N'There is no transaction. Give the text one: begin it, run all of this, and commit.', 1;
if @granted < 0
    throw 51000, N'tablequeue: another program is creating or dropping queues in this database', 1;

-- Remove the dashes if there is such a table and no queue has that name:
-- if object_id(N'tq_emails_turns', N'U') is not null
-- begin
--     exec sp_rename N'pk_tq_emails_turns', N'pk_tq_emails__turns', N'OBJECT';
--     exec sp_rename N'tq_emails_turns', N'tq_emails__turns', N'OBJECT';
-- end;

-- Remove the dashes if there is such a table and no queue has that name:
-- if object_id(N'tq_emails_streams', N'U') is not null
-- begin
--     exec sp_rename N'pk_tq_emails_streams', N'pk_tq_emails__streams', N'OBJECT';
--     exec sp_rename N'tq_emails_streams', N'tq_emails__streams', N'OBJECT';
-- end;

-- Remove the dashes if there is such a table and no queue has that name:
-- if object_id(N'tq_emails_writers', N'U') is not null
-- begin
--     exec sp_rename N'pk_tq_emails_writers', N'pk_tq_emails__writers', N'OBJECT';
--     exec sp_rename N'tq_emails_writers', N'tq_emails__writers', N'OBJECT';
-- end;

-- Remove the dashes if there is such a table and no queue has that name:
-- drop table if exists tq_emails_staged;

-- Remove the dashes if there is such a table and no queue has that name:
-- if object_id(N'tq__schedules', N'U') is null
--     create table tq__schedules (
--         name varbinary(1020) not null constraint pk_tq__schedules primary key nonclustered,
--         last_due datetime2(6) not null
--     );
-- if object_id(N'tq_schedules', N'U') is not null
-- begin
--     insert into tq__schedules (name, last_due)
--     select convert(varbinary(1020), old.name), old.last_due
--     from tq_schedules as old;
--     drop table tq_schedules;
-- end;

-- From schema version 3 to 4: the parts of a queue's table are named tq_emails__part, as no queue's table is.
-- Of the procedures, those that were for the others are dropped; all are to be made again.
-- Locks: the table, for a moment. Runs in one transaction: a crash leaves version 3. What has its new name is passed
-- over.
if indexproperty(object_id(N'tq_emails'), N'tq_emails_ready', 'IndexID') is not null
    exec sp_rename N'tq_emails.tq_emails_ready', N'tq_emails__ready', N'INDEX';
if indexproperty(object_id(N'tq_emails'), N'tq_emails_scheduled', 'IndexID') is not null
    exec sp_rename N'tq_emails.tq_emails_scheduled', N'tq_emails__scheduled', N'INDEX';
if indexproperty(object_id(N'tq_emails'), N'tq_emails_in_progress', 'IndexID') is not null
    exec sp_rename N'tq_emails.tq_emails_in_progress', N'tq_emails__in_progress', N'INDEX';
if indexproperty(object_id(N'tq_emails'), N'tq_emails_dead', 'IndexID') is not null
    exec sp_rename N'tq_emails.tq_emails_dead', N'tq_emails__dead', N'INDEX';
if indexproperty(object_id(N'tq_emails'), N'tq_emails_blocked', 'IndexID') is not null
    exec sp_rename N'tq_emails.tq_emails_blocked', N'tq_emails__blocked', N'INDEX';
if indexproperty(object_id(N'tq_emails'), N'tq_emails_key', 'IndexID') is not null
    exec sp_rename N'tq_emails.tq_emails_key', N'tq_emails__key', N'INDEX';
if indexproperty(object_id(N'tq_emails'), N'tq_emails_due', 'IndexID') is not null
    exec sp_rename N'tq_emails.tq_emails_due', N'tq_emails__due', N'INDEX';
if object_id(N'df_tq_emails_state', N'D') is not null
    exec sp_rename N'df_tq_emails_state', N'df_tq_emails__state', N'OBJECT';
if object_id(N'df_tq_emails_attempts', N'D') is not null
    exec sp_rename N'df_tq_emails_attempts', N'df_tq_emails__attempts', N'OBJECT';
if object_id(N'df_tq_emails_priority', N'D') is not null
    exec sp_rename N'df_tq_emails_priority', N'df_tq_emails__priority', N'OBJECT';
if object_id(N'ck_tq_emails_state', N'C') is not null
    exec sp_rename N'ck_tq_emails_state', N'ck_tq_emails__state', N'OBJECT';
if object_id(N'tq_emails_arrange', N'P') is not null drop procedure tq_emails_arrange;
if object_id(N'tq_emails_claim', N'P') is not null drop procedure tq_emails_claim;
if object_id(N'tq_emails_due', N'P') is not null drop procedure tq_emails_due;
if object_id(N'tq_emails_expired', N'P') is not null drop procedure tq_emails_expired;
if object_id(N'tq_emails_finish', N'P') is not null drop procedure tq_emails_finish;
if object_id(N'tq_emails_give_back', N'P') is not null drop procedure tq_emails_give_back;
if object_id(N'tq_emails_insert', N'P') is not null drop procedure tq_emails_insert;
if object_id(N'tq_emails_insert_each', N'P') is not null drop procedure tq_emails_insert_each;
if object_id(N'tq_emails_look_up', N'P') is not null drop procedure tq_emails_look_up;
if object_id(N'tq_emails_outdated', N'P') is not null drop procedure tq_emails_outdated;
if object_id(N'tq_emails_peek_blocked', N'P') is not null drop procedure tq_emails_peek_blocked;
if object_id(N'tq_emails_peek_dead', N'P') is not null drop procedure tq_emails_peek_dead;
if object_id(N'tq_emails_peek_in_progress', N'P') is not null drop procedure tq_emails_peek_in_progress;
if object_id(N'tq_emails_peek_ready', N'P') is not null drop procedure tq_emails_peek_ready;
if object_id(N'tq_emails_peek_scheduled', N'P') is not null drop procedure tq_emails_peek_scheduled;
if object_id(N'tq_emails_remove', N'P') is not null drop procedure tq_emails_remove;
if object_id(N'tq_emails_sweep', N'P') is not null drop procedure tq_emails_sweep;
if indexproperty(object_id(N'tq_emails_history'), N'tq_emails_finished', 'IndexID') is not null
    exec sp_rename N'tq_emails_history.tq_emails_finished', N'tq_emails__finished', N'INDEX';

-- Names of up to 255 characters, of all alphabets, which catalogues of schema version 4 cannot hold.
-- Under the creators' lock, in one transaction: a crash leaves the catalogue as it was.
alter table tq_queues drop constraint pk_tq_queues;
alter table tq_queues alter column name nvarchar(255) collate Latin1_General_100_BIN2 not null;
alter table tq_queues add constraint pk_tq_queues primary key clustered (name);

-- The tables whose claims are paused: their messages are not handed out until that time. Usually there is none.
-- Under the creators' lock. A crash leaves nothing.
if object_id(N'tq__paused', N'U') is null
    create table tq__paused (
        name varchar(128) collate Latin1_General_100_BIN2 not null constraint pk_tq__paused primary key clustered,
        until datetime2(6) not null
    );

-- The tables of dropped queues, topics and subscriptions. Nothing new gets a table of such a name, so a process that
-- has a dropped queue open reaches no other one.
-- Under the creators' lock. A crash leaves nothing.
if object_id(N'tq__dropped', N'U') is null
    create table tq__dropped (
        name varchar(128) collate Latin1_General_100_BIN2 not null constraint pk_tq__dropped primary key clustered
    );

-- From schema version 4 to 5: messages that expire or are cancelled. No table is written anew.
-- Locks: the tables, for a moment. Runs in one transaction: a crash leaves version 4.
alter table tq_emails add expires_at datetime2(6) null, cancelled_at datetime2(6) null;
alter table tq_emails_history add outcome varchar(9) collate Latin1_General_100_BIN2 null;

-- Enter the schema version of a queue in the catalogue, in the transaction that upgrades its tables.
update tq_queues set schema_version = 8 where name = cast('emails' as nvarchar(255));
