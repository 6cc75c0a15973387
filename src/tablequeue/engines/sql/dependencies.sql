-- Dependencies: messages that wait until others have left their queues.

-- name: drop_dependencies
-- In one transaction with the queue; on MariaDB and MySQL a crash before the end leaves rows that nothing reads.
delete from {dependencies} where queue = '{table}';

-- name: add_dependencies
-- Note that the message, which the same transaction pushes, waits for another one; or its head.
-- Locks: none that another transaction waits for, on SQLite the database. A crash before the commit leaves nothing.
insert into {dependencies} (queue, message, on_table, on_id, on_dead, delay, due)
values ('{table}', :message, :on_table, :on_id, :on_dead, :delay, :due);

-- name: awaited_tables
-- Index: tq__dependencies_queue, on MariaDB and MySQL queue. Locks: none.
select distinct on_table from {dependencies} where queue = '{table}';

-- name: is_awaited
-- Index: tq__dependencies_on, on MariaDB and MySQL on_table. Locks: none.
select 1 from {dependencies} where on_table = '{table}' limit 1;

-- name: orphaned_dependencies
-- Index: tq__dependencies_queue, on MariaDB and MySQL queue. Locks: none.
select id from {dependencies} where queue = '{table}' and on_table = :on_table limit :n;

-- name: freed_heads
-- Indexes: tq__dependencies_queue, tq__dependencies_message, on MariaDB and MySQL queue, message. Locks: none.
select head.id from {dependencies} as head
where head.queue = '{table}' and head.on_table = '' and not exists (
    select 1 from {dependencies} as waiting
    where waiting.queue = '{table}' and waiting.message = head.message and waiting.on_table <> ''
)
order by head.id
limit :n;
