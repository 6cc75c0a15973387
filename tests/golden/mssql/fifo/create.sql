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

go

-- The catalogue: one row a queue, with its definition as JSON and the version of its tables. The pauses: the
-- tables whose messages are not handed out until a time. The tables of dropped queues, topics and subscriptions:
-- nothing new gets a table of such a name, so a process that has a dropped queue open reaches no other one. The
-- identity of the database, in one row: see renew_identity.
-- Under the creators' lock. A crash leaves nothing.
if object_id(N'tq__identity', N'U') is null
    create table tq__identity (
        id char(32) collate Latin1_General_100_BIN2 not null constraint pk_tq__identity primary key clustered
    );
insert into tq__identity (id)
select lower(replace(convert(char(36), newid()), '-', '')) where not exists (select 1 from tq__identity);
if object_id(N'tq_queues', N'U') is null
    create table tq_queues (
        name nvarchar(255) collate Latin1_General_100_BIN2 not null constraint pk_tq_queues primary key clustered,
        definition nvarchar(max) not null,
        schema_version int not null,
        created_at datetime2(6) not null
    );
if object_id(N'tq__paused', N'U') is null
    create table tq__paused (
        name varchar(128) collate Latin1_General_100_BIN2 not null constraint pk_tq__paused primary key clustered,
        until datetime2(6) not null
    );
if object_id(N'tq__dropped', N'U') is null
    create table tq__dropped (
        name varchar(128) collate Latin1_General_100_BIN2 not null constraint pk_tq__dropped primary key clustered
    );

go

-- Fail if a dropped queue had this table: then another name has to be chosen. The library chooses one by itself, under
-- the creators' lock; this is for printed SQL. Index: the primary key.
insert into tq__dropped (name) values ('tq_emails');
delete from tq__dropped where name = 'tq_emails';

go

-- A queue's table.
-- Its clustered index depends on the order of the queue:   fifo, lifo, priority: clustered on the identity. Messages
-- are stored in the order of their pushes, so that     neighbours are read and deleted together. A few consumers drain
-- it fastest.   due: clustered on the due time (create_due), the order in which messages are claimed.   heap: no
-- clustered index. Many consumers and producers spread over the pages, instead of waiting for the latch of     the
-- first page and of the last one. A row is found by its RID. A message is in exactly one of the five filtered indexes
-- of the states; the ready one has the columns of the order. The indexes are narrow, because only the claim reads the
-- message itself. They include the column of the filter: without it, a plan that tests or returns that column would
-- look up every row. The ready index of lifo is ascending and is read backwards: if it were descending, every push
-- would split the first page. A deduplication key is unique among the messages in the table: live ones and dead
-- letters. Keys and groups are stored as the UTF-16 bytes of their text. SQL Server pads text with spaces before it
-- compares it, even under a binary collation, so that N'a' and N'a ' would be one key. It pads bytes with zeros, and no
-- key has a NUL. convert(nvarchar(510), dedup_key) returns the text. No lock escalation: a table lock would stop every
-- consumer. Also, no statement changes more than 1,000 messages. The name of a constraint begins with its kind:
-- constraints and tables share one name space, and tq_emails_new may be the table of a queue. In the queue of a
-- subscription each message has its id of the log, so there is no identity. Every session that writes here needs the
-- settings of filtered indexes; see session. Runs in one transaction: a crash leaves nothing.
create table tq_emails (
    id bigint identity (1, 1) not null constraint pk_tq_emails primary key clustered,
    state varchar(11) collate Latin1_General_100_BIN2 not null constraint df_tq_emails__state default 'ready'
        constraint ck_tq_emails__state check (state in ('ready', 'scheduled', 'in_progress', 'dead', 'blocked')),
    attempts int not null constraint df_tq_emails__attempts default 0,
    priority int not null constraint df_tq_emails__priority default 0,
    token uniqueidentifier null,
    pushed_at datetime2(6) not null,
    due_at datetime2(6) null,
    first_popped_at datetime2(6) null,
    popped_at datetime2(6) null,
    lease_until datetime2(6) null,
    expires_at datetime2(6) null,
    cancelled_at datetime2(6) null,
    group_key varbinary(1020) null,
    dedup_key varbinary(1020) null,
    producer nvarchar(512) null,
    consumer nvarchar(512) null,
    headers nvarchar(max) null,
    errors nvarchar(max) null,
    payload nvarchar(max) not null
);
alter table tq_emails set (lock_escalation = disable);
create index tq_emails__ready on tq_emails (id) include (state) where state = 'ready';
create index tq_emails__scheduled on tq_emails (due_at) include (state) where state = 'scheduled';
create index tq_emails__in_progress on tq_emails (lease_until) include (state) where state = 'in_progress';
create index tq_emails__dead on tq_emails (id) include (state) where state = 'dead';
create index tq_emails__blocked on tq_emails (group_key, id) include (state) where state = 'blocked';
create unique index tq_emails__key on tq_emails (dedup_key) where dedup_key is not null;

go

-- The messages that left a queue. A row without finished_at was delivered at most once and is not
-- completed (yet); its token fences the completion.
-- The index is for retention, for lost messages (which it has the time of), and for statistics over a time.
-- Written to by OUTPUT ... INTO: it may have no trigger, no foreign key and no check.
create table tq_emails_history (
    id bigint not null constraint pk_tq_emails_history primary key clustered,
    attempts int not null,
    priority int not null,
    token uniqueidentifier null,
    pushed_at datetime2(6) not null,
    due_at datetime2(6) null,
    first_popped_at datetime2(6) null,
    popped_at datetime2(6) null,
    finished_at datetime2(6) null,
    outcome varchar(9) collate Latin1_General_100_BIN2 null,
    group_key nvarchar(510) collate Latin1_General_100_BIN2 null,
    dedup_key nvarchar(510) collate Latin1_General_100_BIN2 null,
    producer nvarchar(512) null,
    consumer nvarchar(512) null,
    headers nvarchar(max) null,
    errors nvarchar(max) null,
    payload nvarchar(max) not null
);
alter table tq_emails_history set (lock_escalation = disable);
create index tq_emails__finished on tq_emails_history (finished_at) include (popped_at);

go

-- Enter a queue in the catalogue, in the transaction that makes its tables.
insert into tq_queues (name, definition, schema_version, created_at)
values (cast('emails' as nvarchar(255)), cast('{"backoff": {"base": 1.0, "cap": 3600.0, "factor": 2.0, "jitter": 0.1}, "delivery": "at_least_once", "groups": false, "history": 2592000.0, "lease": 60.0, "max_attempts": 5, "order": "fifo", "payload": "json", "strict": false, "table": "tq_emails"}' as nvarchar(max)), 1, sysutcdatetime());
