-- A word after a colon is a parameter; with --values there are examples, for mariadb or mysql.

-- The library runs these statements one by one, in one transaction. It takes parameters of the later ones from the rows
-- of the earlier ones, and leaves out a statement that has nothing to do.
-- The procedure tq_emails_push does all of it: see `tablequeue sql procedures`.

-- Push one message: it is ready, or scheduled if it is due later.
-- A duplicate-key error if a live message has its :key. Without a key it is one statement in autocommit, the insert;
-- with a key, a packet. One round trip.
-- Locks: a key waits for another transaction that is pushing the same one. A crash before the commit leaves nothing.
insert into tq_emails__live_keys (dedup_key, id) select :key, 0 from dual where :key is not null;
insert into tq_emails (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state)
values (
    :payload, :headers, :producer, :priority, :group, :key, coalesce(cast(:now as datetime(6)), utc_timestamp(6)),
    coalesce(cast(:due as datetime(6)), coalesce(cast(:now as datetime(6)), utc_timestamp(6)) + interval :delay second),
    case
        when coalesce(cast(:due as datetime(6)), coalesce(cast(:now as datetime(6)), utc_timestamp(6)) + interval :delay second) > coalesce(cast(:now as datetime(6)), utc_timestamp(6)) then 'scheduled'
        else 'ready'
    end
);
update tq_emails__live_keys set id = last_insert_id() where dedup_key = :key;
