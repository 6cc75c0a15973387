-- A word after a colon is a parameter; with --values there are examples, for mariadb or mysql.

-- Push one message: it is ready, or scheduled if it is due later. A duplicate-key error if a live message has its :key.
-- One statement in autocommit: one round trip. The id is the one that the driver gets back with the answer.
-- Locks: a key waits for another transaction that is pushing the same one. A crash before the commit leaves nothing.
insert into tq_emails (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state)
values (
    :payload, :headers, :producer, :priority, :group, :key, coalesce(cast(:now as datetime(6)), utc_timestamp(6)),
    coalesce(cast(:due as datetime(6)), coalesce(cast(:now as datetime(6)), utc_timestamp(6)) + interval :delay second),
    case
        when coalesce(cast(:due as datetime(6)), coalesce(cast(:now as datetime(6)), utc_timestamp(6)) + interval :delay second) > coalesce(cast(:now as datetime(6)), utc_timestamp(6)) then 'scheduled'
        else 'ready'
    end
);
