-- The messages that left a queue. A row without finished_at was delivered at most once and is not completed (yet);
-- its token fences the completion.
-- The index is for retention, for lost messages, and for statistics over a time.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {history} (
    id bigint not null primary key,
    attempts int not null,
    priority int not null default 0,
    token char(32) character set ascii collate ascii_bin,
    pushed_at datetime(6) not null,
    due_at datetime(6),
    first_popped_at datetime(6),
    popped_at datetime(6),
    finished_at datetime(6),
    outcome varchar(9) character set ascii collate ascii_bin,
    group_key varbinary(1020),
    dedup_key varbinary(1020),
    producer varchar(255),
    consumer varchar(255),
    headers longtext,
    errors longtext,
    payload {payload_type},
    key {table}__finished (finished_at)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: history of {table}';
