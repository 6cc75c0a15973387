-- A queue's table. How it is laid out is the choice of its order:
--   fifo, lifo, priority: clustered on the identity, so that messages lie in the order they came in, and neighbours
--     are read and removed together. Few consumers drain it fastest.
--   due: clustered on the due time (create_due), the order in which its messages go.
--   heap: no clustered index. Many consumers and producers spread over the pages instead of queueing up for the latch
--     of the first and the last one; a row is found by its RID.
-- A message is in exactly one of the five filtered indexes of the states; the ready one has the columns of the order.
-- They are narrow (the message itself is read once, by the claim); the column of the filter is included, for a plan
-- that tests or returns it would look up every row otherwise. lifo has its ready index ascending and reads it
-- backwards: descending, every push would split the first page.
-- A deduplication key is unique among the messages in the table: live ones and dead letters. It and the group are
-- the UTF-16 bytes of their text, for SQL Server pads text before it compares, under a binary collation too: N'a' and
-- N'a ' would be one key. Bytes are padded with zeros, and no key has a NUL. convert(nvarchar(510), dedup_key) is the
-- text again.
-- No lock escalation: a table lock would stop every consumer. Statements keep to 1,000 messages besides.
-- Names of constraints begin with their kind: they are objects like tables, and tq_emails_new may be a queue's.
-- Every session that writes here needs the settings of filtered indexes; see session.
-- Runs in one transaction: a crash leaves nothing.
create table {queue} (
    id bigint identity (1, 1) not null constraint pk_{table} primary key {clustered},
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
    group_key varbinary(1020) null,
    dedup_key varbinary(1020) null,
    producer nvarchar(512) null,
    consumer nvarchar(512) null,
    headers nvarchar(max) null,
    errors nvarchar(max) null,
    payload {payload_type} not null
);
alter table {queue} set (lock_escalation = disable);
create index {table}__ready on {queue} ({ready_index}) include (state) where {indexed};
create index {table}__scheduled on {queue} (due_at) include (state) where state = 'scheduled';
create index {table}__in_progress on {queue} (lease_until) include (state) where state = 'in_progress';
create index {table}__dead on {queue} (id) include (state) where state = 'dead';
create index {table}__blocked on {queue} (group_key, id) include (state) where state = 'blocked';
create unique index {table}__key on {queue} (dedup_key) where dedup_key is not null;
