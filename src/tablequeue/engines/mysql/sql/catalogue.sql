-- The catalogue of queues, its entries, and pauses.

-- name: lock
-- The creators' lock: one creator at a time creates or drops queues in a database. 1 if the lock was free within a
-- minute. It belongs to the connection, not to a transaction, because each DDL commits; a crash of the client frees it.
-- Its name is hashed: a lock's name is limited to 64 characters, and a database's name may have as many.
-- The server ends a session that has the lock and is idle for 30 s, as one that is idle in a transaction.
set session wait_timeout =
    /*M!100300 if(@@idle_transaction_timeout between 1 and 30, @@idle_transaction_timeout, */ 30 /*M!100300 ) */;
select get_lock(concat('tablequeue.', md5(coalesce({database}, ''))), 60);

-- name: unlock
-- Free the creator's lock, on the connection that has it.
do release_lock(concat('tablequeue.', md5(coalesce({database}, ''))));
set session wait_timeout = default;

-- name: has_table
-- Return whether the table :table exists, of those that the user has rights on. Its name may have the database before
-- it.
select count(*) from information_schema.tables
where table_schema = {database} and table_name = substring_index(:table, '.', -1);

-- name: has_schema
-- Whether the database of the queues is there, of those that the user has rights on.
select count(*) from information_schema.schemata where schema_name = {database};

-- name: install
-- Under the creator's lock. Like every DDL it commits by itself; the catalogue comes last, so a
-- crash leaves it whole, or none.
create table if not exists {identity} (
    id char(32) character set ascii collate ascii_bin primary key
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the identity of the database';
insert into {identity} (id) select replace(uuid(), '-', '') from dual where not exists (select * from {identity});
create table if not exists {paused} (
    name varchar(64) character set ascii collate ascii_bin primary key,
    until datetime(6) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the pauses';
create table if not exists {dropped} (
    name varchar(64) character set ascii collate ascii_bin primary key
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the dropped tables';
create table if not exists {catalogue} (
    name varchar(255) character set utf8mb4 collate utf8mb4_bin primary key,
    definition text character set utf8mb4 collate utf8mb4_bin not null,
    schema_version int not null,
    created_at datetime(6) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the catalogue';

-- name: renew_identity
-- Locks: the row. A crash leaves the old one.
update {identity} set id = replace(uuid(), '-', '');

-- name: install_schema
-- The database of the queues, for a connection that names one: what MySQL calls a schema is a database.
create database if not exists {quoted_schema};

-- name: leftovers
-- The existing tables with the names of a queue's tables, and their comments, which tell the owner. Under the creators'
-- lock, and only if the catalogue has no such queue: then tables of ours were left by a crash during create or drop.
select table_name, table_comment
from information_schema.tables
where table_schema = {database} and table_name in (
    '{table}', '{table}_history', '{table}__turns', '{table}__heads', '{table}__runs', '{table}__holes',
    '{table}__ranges',
    '{table}__slots', '{table}__rate', '{table}__stripes', '{table}__group_rates', '{table}__results',
    '{table}__keys', '{table}__live_keys', '{table}__moving', '{table}__moved'
);

-- name: leftovers_of_dropped
-- The tables of dropped queues that are still there, because a crash came after the catalogue had forgotten the queue.
-- Their comments tell whose they are. First what refers to another one. Under the creators' lock.
select t.table_name
from information_schema.tables as t
join {dropped} as d on d.name = substring_index(t.table_comment, ' of ', -1)
where t.table_schema = {database} and t.table_comment like 'tablequeue: %'
    and not exists (
        select 1 from {catalogue} as c where instr(c.definition, concat('"table": "', d.name, '"')) > 0
    )
order by t.table_comment not like 'tablequeue: results of %';

-- name: note_dropped
-- Note the table of a queue, before the catalogue forgets the queue: nothing new gets its name.
insert ignore into {dropped} (name) values ('{table}');

-- name: pause
-- Index: the primary key. Locks: the row. A crash leaves the queue as it was.
insert into {paused} (name, until) values ('{table}', :until)
on duplicate key update until = values(until);

-- name: limit_waits
-- name: limit_waits.begin
set @tq_lock_wait_timeout = @@session.lock_wait_timeout, session lock_wait_timeout = 1;
-- name: limit_waits.end
set session lock_wait_timeout = @tq_lock_wait_timeout;
