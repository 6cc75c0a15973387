-- The messages that left a queue. A row without finished_at was delivered at most once and is not completed (yet);
-- its token fences the completion.
-- The index is for retention, for lost messages (which it has the time of), and for statistics over a time.
-- Written to by OUTPUT ... INTO: it may have no trigger, no foreign key and no check.
create table {history} (
    id bigint not null constraint pk_{table}_history primary key clustered,
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
    payload {payload_type} not null
);
alter table {history} set (lock_escalation = disable);
create index {table}__finished on {history} (finished_at) include (popped_at);
