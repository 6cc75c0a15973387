-- For sqlite3, as it is. Between `begin;` and `commit;` it is all or nothing.

-- The catalogue: one row a queue, with its definition as JSON and the version of its tables. The pauses: the
-- tables whose messages are not handed out until a time. The tables of dropped queues, topics and subscriptions:
-- nothing new gets a table of such a name, so a process that has a dropped queue open reaches no other one. The
-- identity of the database, in one row: see renew_identity.
-- Locks: the caller's BEGIN IMMEDIATE lets one creator at a time through. A crash leaves nothing.
create table if not exists tq__identity (id text primary key) strict, without rowid;
insert into tq__identity (id) select lower(hex(randomblob(16))) where not exists (select 1 from tq__identity);
create table if not exists tq_queues (
    name text primary key,
    definition text not null check (json_valid(definition)),
    schema_version integer not null,
    created_at integer not null
) strict, without rowid;
create table if not exists tq__paused (
    name text primary key,
    until integer not null
) strict, without rowid;
create table if not exists tq__dropped (name text primary key) strict, without rowid;

-- Fail if a dropped queue had this table: then another name has to be chosen. The library chooses one by itself, under
-- the creators' lock; this is for printed SQL. Index: the primary key.
insert into tq__dropped (name) values ('tq_emails');
delete from tq__dropped where name = 'tq_emails';

-- A queue's table.
-- Times are whole microseconds since 1970 in UTC. AUTOINCREMENT: without it, an empty queue would give an id a second
-- time. A message is in exactly one of the five partial indexes of the states; the ready one has the columns of the
-- order. A deduplication key is unique among the messages in the table: live ones and dead letters. Runs in one
-- transaction: a crash leaves nothing.
create table tq_emails (
    id integer primary key autoincrement,
    state text not null default 'ready' check (state in ('ready', 'scheduled', 'in_progress', 'dead', 'blocked')),
    attempts integer not null default 0,
    priority integer not null default 0,
    token text,
    pushed_at integer not null,
    due_at integer,
    first_popped_at integer,
    popped_at integer,
    lease_until integer,
    expires_at integer,
    cancelled_at integer,
    group_key text,
    dedup_key text,
    producer text,
    consumer text,
    headers text check (headers is null or json_valid(headers)),
    errors text check (errors is null or json_valid(errors)),
    payload text not null check (json_valid(payload))
) strict;
create index tq_emails__ready on tq_emails (id) where state = 'ready';
create index tq_emails__scheduled on tq_emails (due_at) where state = 'scheduled';
create index tq_emails__in_progress on tq_emails (lease_until) where state = 'in_progress';
create index tq_emails__dead on tq_emails (id) where state = 'dead';
create index tq_emails__blocked on tq_emails (group_key, id) where state = 'blocked';
create unique index tq_emails__key on tq_emails (dedup_key) where dedup_key is not null;

-- The messages that left a queue. A row without finished_at was delivered at most once and is not
-- completed (yet); its token fences the completion.
-- The index is for retention, for lost messages, and for statistics over a time.
create table tq_emails_history (
    id integer primary key,
    attempts integer not null,
    priority integer not null default 0,
    token text,
    pushed_at integer not null,
    due_at integer,
    first_popped_at integer,
    popped_at integer,
    finished_at integer,
    outcome text,
    group_key text,
    dedup_key text,
    producer text,
    consumer text,
    headers text,
    errors text,
    payload text not null check (json_valid(payload))
) strict;
create index tq_emails__finished on tq_emails_history (finished_at);

-- Enter a queue in the catalogue, in the transaction that makes its tables; on MariaDB and MySQL when all of them are
-- there: only now it is a queue.
insert into tq_queues (name, definition, schema_version, created_at)
values ('emails', '{"backoff": {"base": 1.0, "cap": 3600.0, "factor": 2.0, "jitter": 0.1}, "delivery": "at_least_once", "groups": false, "history": 2592000.0, "lease": 60.0, "max_attempts": 5, "order": "fifo", "payload": "json", "strict": false, "table": "tq_emails"}', 1, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000);
