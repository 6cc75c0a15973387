-- Push several messages in their order, some in a statement: (:payload) stands there once for each of them.
-- All statements are in one transaction: all are pushed, or none. The ids are consecutive and end at
-- last_insert_rowid(). Locks: the database. A crash before the commit leaves nothing.
insert into {log} (pushed_at, producer, group_key, headers, payload)
select {now}, :producer, :group, :headers, column1
from (values (:payload));
