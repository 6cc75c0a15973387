-- Push one message to the log. One statement in autocommit: one round trip. The id is the one that the driver gets back
-- with the answer.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
insert into {log} (payload, headers, producer, group_key, pushed_at)
values (:payload, :headers, :producer, :group, {now});
