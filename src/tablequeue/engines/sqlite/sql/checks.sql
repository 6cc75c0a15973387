-- Checks of `doctor`, and the state of the database and of connections.

-- name: indexes
-- The indexes of the queue, its history, its ranges and its other tables. Locks: none.
select name
from sqlite_schema
where type = 'index'
    and '{prefix}' || tbl_name in ('{queue}', '{history}', '{ranges}', '{keys}', '{group_rates}', '{results}');

-- name: check_journal
-- The journal mode, where it is not WAL. Locks: none.
select journal_mode from pragma_journal_mode where journal_mode <> 'wal';

-- name: check_synchronous
-- The setting synchronous of this connection, if its commits are not flushed (2 is FULL, the default). Locks: none.
select synchronous from pragma_synchronous where synchronous < 2;

-- name: check_wal
-- The file of the database; its WAL lies beside it. Locks: none.
select file from pragma_database_list where name = 'main';

-- name: sizes
-- The file with all tables: its name, rows and dead rows (unknown), and bytes. To size each table SQLite reads all of
-- the file. Locks: none.
select 'the file', null, page_count * page_size, null
from pragma_page_count, pragma_page_size;
