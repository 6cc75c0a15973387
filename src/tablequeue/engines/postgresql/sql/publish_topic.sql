-- Push to a log what the :attempts of the write :write staged, in the order of their parts, all at once.
-- Index: the primary key. Locks: none that another transaction waits for.
-- One transaction with writer_advance: a crash publishes none.
insert into {log} (pushed_at, producer, group_key, headers, payload)
select {now}, cast(:producer as text), group_key, headers, payload
from (
    select unnest(payloads) as payload, unnest(headers) as headers, unnest(groups) as group_key
    from (
        select * from {staged}
        where write_id = :write and attempt = any(:attempts)
        order by part, place
    ) as parts
) as message;
