-- A queue's table. There are no partial indexes here, so one index has all states: sweep_at is the time at which a
-- message in it must be looked at (due, or its lease expired), and null where there is none, so that those are in
-- the order of their ids. A claim changes one index entry.
-- Keys and groups are binary: 'a', 'A' and 'a ' are three different keys. No collation of both servers does so.
-- JSON is kept as text, as it was pushed: the type JSON of MySQL would sort the keys of an object.
-- Under the creators' lock. A DDL commits by itself: a crash leaves a table that is not in the catalogue, but has a
-- comment with the name of its queue. The next create drops it (leftovers.sql) and begins again.
create table {queue} (
    id bigint not null auto_increment primary key,
    state enum({states})
        character set ascii collate ascii_bin not null default 'ready',
    attempts int not null default 0,
    priority int not null default 0,
    token char(32) character set ascii collate ascii_bin,
    pushed_at datetime(6) not null,
    due_at datetime(6),
    first_popped_at datetime(6),
    popped_at datetime(6),
    lease_until datetime(6),
    expires_at datetime(6),
    cancelled_at datetime(6),
    group_key varbinary(1020),
    dedup_key varbinary(1020),
    producer varchar(255),
    consumer varchar(255),
    headers longtext,
    errors longtext,
    payload {payload_type},
    sweep_at datetime(6) generated always as (
        case state when 'scheduled' then due_at when 'in_progress' then lease_until end
    ) stored,
    key {table}__state (state, sweep_at, id),
    unique key {table}__key (dedup_key)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: messages of {table}';
