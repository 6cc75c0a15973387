-- Push to a log what the :attempts of the write :write staged, in the order of their parts, all at once.
-- Index: the primary key. Locks: none that another transaction waits for.
-- The transaction has its id before the ids of the messages are given, as the default of the id would see to for each
-- row: see create_topic. That would take a tenth of the time.
-- One transaction with writer_advance: a crash publishes none.
insert into {log} (id, pushed_at, producer, group_key, headers, payload)
select nextval('{log}__ids'), {now}, cast(:producer as text), group_key, headers, payload
from (
    select unnest(payloads) as payload, unnest(headers) as headers, unnest(groups) as group_key
    from (
        select * from {staged}
        where write_id = :write and attempt = any(:attempts) and pg_current_xact_id() is not null
        order by part, place
    ) as parts
) as message;
