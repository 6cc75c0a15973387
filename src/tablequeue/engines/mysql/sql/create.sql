-- The tables of a queue: create and drop.

-- name: create
-- There are no partial indexes here, so one index has all states: sweep_at is the time at which a message in it must be
-- looked at (due, or its lease expired), and null where there is none, so that those are in the order of their ids. A
-- claim changes one index entry. Keys and groups are binary: 'a', 'A' and 'a ' are three different keys. No collation
-- of both servers does so. JSON is kept as text, as it was pushed: the type JSON of MySQL would sort the keys of an
-- object. Under the creators' lock. A DDL commits by itself: a crash leaves a table that is not in the catalogue, but
-- has a comment with the name of its queue. The next create drops it (`leftovers`) and begins again.
create table {queue} (
    id bigint not null auto_increment primary key,
    state enum({states})
        character set ascii collate ascii_bin not null default 'ready',
    attempts int not null default 0,
    priority int not null default 0,
    token char(32) character set ascii collate ascii_bin,
    pushed_at datetime(6) not null,
    {queue_table},
    payload {payload_type},
    sweep_at datetime(6) generated always as (
        case state when 'scheduled' then due_at when 'in_progress' then lease_until end
    ) stored,
    key {table}__state (state, sweep_at, id)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: messages of {table}';

-- name: create_live_keys
-- The deduplication keys of the messages of a queue, each with its message. What deletes a message deletes its row. A
-- key without a message yet has the id 0. The primary key makes pushes of one key wait for each other; a unique index
-- would make those of neighbours wait too, as long as the entry of a deleted key is in it.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {live_keys} (
    dedup_key varbinary(1020) not null primary key,
    id bigint not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: live_keys of {table}';

-- name: drop_live_keys
-- Drop the table of the keys of live messages.
drop table if exists {live_keys};

-- name: create_due
-- What a queue in order of due times has in addition: an index over the messages that wait, ready or scheduled.
-- A crash before the end leaves tables that are not in the catalogue: see create.
alter table {queue}
    add column waiting tinyint generated always as (case when {indexed} then 1 end) stored,
    add key {table}__ready (waiting, {ready_index});

-- name: create_priority
-- What a queue in order of priorities has in addition: an index over the ready messages, by the priority turned round,
-- for MariaDB before 10.8 has no descending indexes.
-- A crash before the end leaves tables that are not in the catalogue: see create.
alter table {queue}
    add column waiting tinyint generated always as (case when {indexed} then 1 end) stored,
    add column urgency bigint generated always as (-priority) stored,
    add key {table}__ready (waiting, {ready_index});

-- name: create_history
-- The index is for retention, for lost messages, and for statistics over a time.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {history} (
    id bigint not null primary key,
    attempts int not null,
    priority int not null default 0,
    token char(32) character set ascii collate ascii_bin,
    pushed_at datetime(6) not null,
    {history_table},
    payload {payload_type},
    key {table}__finished (finished_at)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: history of {table}';

-- name: create_results
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {results} (
    id bigint not null primary key,
    result longtext not null check (json_valid(result)),
    constraint {table}__results_of foreign key (id) references {history} (id) on delete cascade
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: results of {table}';

-- name: create_keys
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {keys} (
    dedup_key varbinary(1020) not null primary key,
    token char(32) character set ascii collate ascii_bin not null,
    id bigint,
    taken_until datetime(6) not null,
    key {table}__keys_until (taken_until)
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: keys of {table}';

-- name: create_expiry
-- There are no partial indexes here: the state comes first.
alter table {queue} add key {table}__expires (state, expires_at);

-- name: create_expired
alter table {history} add key {table}__expired (outcome, finished_at);
