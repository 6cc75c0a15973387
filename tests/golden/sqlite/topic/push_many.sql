-- A word after a colon is a parameter; with --values there are examples, for sqlite3.

-- Push several messages in their order, some in a statement: (:payload) stands there once for each of them.
-- All statements are in one transaction: all are pushed, or none. The ids are consecutive and end at
-- last_insert_rowid(). Locks: the database. A crash before the commit leaves nothing.
insert into tq_events (pushed_at, producer, group_key, headers, payload)
select coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), :producer, :group, :headers, column1
from (values (:payload));
