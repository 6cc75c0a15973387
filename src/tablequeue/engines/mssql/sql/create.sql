-- The tables of a queue: create and drop.

-- name: create
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
create table {queue} (
    -- [not subscription]
    id bigint identity (1, 1) not null constraint pk_{table} primary key {clustered},
    -- [else]
    id bigint not null constraint pk_{table} primary key clustered,
    -- [end]
    state varchar(11) collate Latin1_General_100_BIN2 not null constraint df_{table}__state default 'ready'
        constraint ck_{table}__state check (state in ({states})),
    attempts int not null constraint df_{table}__attempts default 0,
    priority int not null constraint df_{table}__priority default 0,
    token uniqueidentifier null,
    pushed_at datetime2(6) not null,
    {queue_table},
    payload {payload_type} not null
    -- [grouped]
    , in_run bigint not null constraint df_{table}__in_run default 0
    -- [end]
    -- [fair]
    , slot as {slot_of_group} persisted
    -- [end]
);
alter table {queue} set (lock_escalation = disable);
create index {table}__ready on {queue} ({ready_index}) include (state) where {indexed};
create index {table}__scheduled on {queue} (due_at) include (state) where state = 'scheduled';
create index {table}__in_progress on {queue} (lease_until) include (state) where state = 'in_progress';
create index {table}__dead on {queue} (id) include (state) where state = 'dead';
create index {table}__blocked on {queue} (group_key, id) include (state) where state = 'blocked';
create unique index {table}__key on {queue} (dedup_key) where dedup_key is not null;

-- name: create_due
-- The clustered index of a queue in the order of due times. The id makes it unique: otherwise SQL Server would add four
-- bytes to each duplicate key.
-- Runs in the transaction that creates the table.
create unique clustered index {table}__due on {queue} (due_at, id);

-- name: create_history
-- The index is for retention, for lost messages (which it has the time of), and for statistics over a time.
-- Written to by OUTPUT ... INTO: it may have no trigger, no foreign key and no check.
create table {history} (
    id bigint not null constraint pk_{table}_history primary key clustered,
    attempts int not null,
    priority int not null,
    token uniqueidentifier null,
    pushed_at datetime2(6) not null,
    {history_table with
        group_key = group_key nvarchar(510) collate Latin1_General_100_BIN2 null
        dedup_key = dedup_key nvarchar(510) collate Latin1_General_100_BIN2 null},
    payload {payload_type} not null
);
alter table {history} set (lock_escalation = disable);
create index {table}__finished on {history} (finished_at) include (popped_at);

-- name: create_results
-- The purge of the history deletes it: a table that OUTPUT ... INTO writes may have no trigger and no foreign key.
create table {results} (
    id bigint not null constraint pk_{table}__results primary key clustered,
    result nvarchar(max) not null
);

-- name: create_keys
-- Keys are stored as in create. In one transaction with the queue: a crash leaves nothing.
create table {keys} (
    dedup_key varbinary(1020) not null constraint pk_{table}__keys__key primary key nonclustered,
    token uniqueidentifier not null,
    id bigint null,
    taken_until datetime2(6) not null
);
create index {table}__keys_until on {keys} (taken_until);

-- name: create_expiry
if not exists (select 1 from sys.indexes where name = '{table}__expires' and object_id = object_id('{queue}'))
    create index {table}__expires on {queue} (expires_at) include (state) where {waiting};

-- name: create_expired
if not exists (select 1 from sys.indexes where name = '{table}__expired' and object_id = object_id('{history}'))
    create index {table}__expired on {history} (finished_at) include (outcome) where outcome = 'expired';

-- name: create_notifications
-- Create a Service Broker queue by which pushes notify consumers of your own. It holds a notification while no consumer
-- has looked for messages since a push. The database must have ENABLE_BROKER, which Azure SQL Database does not have.
-- A crash leaves nothing.
create queue {queue}__notify with status = on, poison_message_handling (status = off);
create service [{queue}__notify] on queue {queue}__notify ([DEFAULT]);

-- name: drop_notifications
-- Drop the notifications of the queue, even while consumers wait for them. A crash leaves nothing of them or all.
drop service [{queue}__notify];
drop queue {queue}__notify;
