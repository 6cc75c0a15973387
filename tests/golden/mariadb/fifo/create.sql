-- For mariadb or mysql, as it is. Each DDL statement commits: after a failure, drop what was created with the SQL of `drop`.

-- The creators' lock: one creator at a time creates or drops queues in a database. 1 if the lock was free within a
-- minute. It belongs to the connection, not to a transaction, because each DDL commits; a crash of the client frees it.
-- Its name is hashed: a lock's name is limited to 64 characters, and a database's name may have as many.
-- The server ends a session that has the lock and is idle for 30 s, as one that is idle in a transaction.
set session wait_timeout =
    /*M!100300 if(@@idle_transaction_timeout between 1 and 30, @@idle_transaction_timeout, */ 30 /*M!100300 ) */;
select get_lock(concat('tablequeue.', md5(coalesce(database(), ''))), 60);

-- The catalogue: one row a queue, with its definition as JSON and the version of its tables. The pauses: the
-- tables whose messages are not handed out until a time. The tables of dropped queues, topics and subscriptions:
-- nothing new gets a table of such a name, so a process that has a dropped queue open reaches no other one. The
-- identity of the database, in one row: see renew_identity.
-- Under the creator's lock. Like every DDL it commits by itself; the catalogue comes last, so a
-- crash leaves it whole, or none.
create table if not exists tq__identity (
    id char(32) character set ascii collate ascii_bin primary key
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the identity of the database';
insert into tq__identity (id) select replace(uuid(), '-', '') from dual where not exists (select * from tq__identity);
create table if not exists tq__paused (
    name varchar(64) character set ascii collate ascii_bin primary key,
    until datetime(6) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the pauses';
create table if not exists tq__dropped (
    name varchar(64) character set ascii collate ascii_bin primary key
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the dropped tables';
create table if not exists tq_queues (
    name varchar(255) character set utf8mb4 collate utf8mb4_bin primary key,
    definition text character set utf8mb4 collate utf8mb4_bin not null,
    schema_version int not null,
    created_at datetime(6) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the catalogue';

-- Fail if a dropped queue had this table: then another name has to be chosen. The library chooses one by itself, under
-- the creators' lock; this is for printed SQL. Index: the primary key.
insert into tq__dropped (name) values ('tq_emails');
delete from tq__dropped where name = 'tq_emails';

-- A queue's table.
-- There are no partial indexes here, so one index has all states: sweep_at is the time at which a message in it must be
-- looked at (due, or its lease expired), and null where there is none, so that those are in the order of their ids. A
-- claim changes one index entry. Keys and groups are binary: 'a', 'A' and 'a ' are three different keys. No collation
-- of both servers does so. JSON is kept as text, as it was pushed: the type JSON of MySQL would sort the keys of an
-- object. Under the creators' lock. A DDL commits by itself: a crash leaves a table that is not in the catalogue, but
-- has a comment with the name of its queue. The next create drops it (`leftovers`) and begins again.
create table tq_emails (
    id bigint not null auto_increment primary key,
    state enum('ready', 'scheduled', 'in_progress', 'dead', 'blocked')
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
    payload longtext not null check (json_valid(payload)),
    sweep_at datetime(6) generated always as (
        case state when 'scheduled' then due_at when 'in_progress' then lease_until end
    ) stored,
    key tq_emails__state (state, sweep_at, id)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: messages of tq_emails';

-- The deduplication keys of the messages of a queue, each with its message. What deletes a message deletes its row. A
-- key without a message yet has the id 0. The primary key makes pushes of one key wait for each other; a unique index
-- would make those of neighbours wait too, as long as the entry of a deleted key is in it.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table tq_emails__live_keys (
    dedup_key varbinary(1020) not null primary key,
    id bigint not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: live_keys of tq_emails';

-- The messages that left a queue. A row without finished_at was delivered at most once and is not
-- completed (yet); its token fences the completion.
-- The index is for retention, for lost messages, and for statistics over a time.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table tq_emails_history (
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
    payload longtext not null check (json_valid(payload)),
    key tq_emails__finished (finished_at)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: history of tq_emails';

-- Enter a queue in the catalogue, in the transaction that makes its tables; on MariaDB and MySQL when all of them are
-- there: only now it is a queue.
insert into tq_queues (name, definition, schema_version, created_at)
values ('emails', '{"backoff": {"base": 1.0, "cap": 3600.0, "factor": 2.0, "jitter": 0.1}, "delivery": "at_least_once", "groups": false, "history": 2592000.0, "lease": 60.0, "max_attempts": 5, "order": "fifo", "payload": "json", "strict": false, "table": "tq_emails"}', 1, utc_timestamp(6));

-- Free the creator's lock, on the connection that has it.
do release_lock(concat('tablequeue.', md5(coalesce(database(), ''))));
set session wait_timeout = default;
