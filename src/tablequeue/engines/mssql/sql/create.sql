-- A queue's table. Its clustered index depends on the order of the queue:
--   fifo, lifo, priority: clustered on the identity. Messages are stored in the order of their pushes, so that
--     neighbours are read and deleted together. A few consumers drain it fastest.
--   due: clustered on the due time (create_due), the order in which messages are claimed.
--   heap: no clustered index. Many consumers and producers spread over the pages, instead of waiting for the latch of
--     the first page and of the last one. A row is found by its RID.
-- A message is in exactly one of the five filtered indexes of the states; the ready one has the columns of the order.
-- The indexes are narrow, because only the claim reads the message itself. They include the column of the filter:
-- without it, a plan that tests or returns that column would look up every row. The ready index of lifo is ascending
-- and is read backwards: if it were descending, every push would split the first page.
-- A deduplication key is unique among the messages in the table: live ones and dead letters. Keys and groups are stored
-- as the UTF-16 bytes of their text. SQL Server pads text with spaces before it compares it, even under a binary
-- collation, so that N'a' and N'a ' would be one key. It pads bytes with zeros, and no key has a NUL.
-- convert(nvarchar(510), dedup_key) returns the text.
-- No lock escalation: a table lock would stop every consumer. Also, no statement changes more than 1,000 messages.
-- The name of a constraint begins with its kind: constraints and tables share one name space, and tq_emails_new may be
-- the table of a queue.
-- In the queue of a subscription each message has its id of the log, so there is no identity.
-- Every session that writes here needs the settings of filtered indexes; see session.
-- Runs in one transaction: a crash leaves nothing.
create table {queue} (
    -- [not subscription]
    id bigint identity (1, 1) not null constraint pk_{table} primary key {clustered},
    -- [end]
    -- [subscription]
    id bigint not null constraint pk_{table} primary key clustered,
    -- [end]
    state varchar(11) collate Latin1_General_100_BIN2 not null constraint df_{table}__state default 'ready'
        constraint ck_{table}__state check (state in ({states})),
    attempts int not null constraint df_{table}__attempts default 0,
    priority int not null constraint df_{table}__priority default 0,
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
