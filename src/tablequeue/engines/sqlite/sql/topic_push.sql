-- Push one message to the log.
-- Locks: the database, for the length of the statement. A crash before the commit leaves nothing.
insert into {log} (pushed_at, producer, group_key, headers, payload)
values ({now}, :producer, :group, :headers, :payload)
returning id;
