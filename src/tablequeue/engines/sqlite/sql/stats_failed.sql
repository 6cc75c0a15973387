-- The failed attempts of less than :age seconds ago, the consumer of each and how many seconds ago it was: of up to
-- :live messages of each state in the queue, and of the last :n that left it since then.
-- Indexes: those of the states; {table}__finished. Locks: none.
select
    json_extract(error.value, '$.consumer') as consumer,
    ({now} - json_extract(error.value, '$.at')) / 1e6 as ago
from (
    select * from (select errors from {queue} where state = 'ready' limit :live)
    union all
    select * from (select errors from {queue} where state = 'scheduled' order by due_at desc limit :live)
    union all
    select * from (select errors from {queue} where state = 'in_progress' order by lease_until desc limit :live)
    union all
    select * from (select errors from {queue} where state = 'dead' order by id desc limit :live)
    union all
    select * from (select errors from {queue} where state = 'blocked' limit :live)
    union all
    select * from (
        select errors from {history}
        where finished_at > {now} - cast(:age * 1000000 as integer) and finished_at <= {now}
        order by finished_at desc
        limit :n
    )
) as message, json_each(message.errors) as error
where json_extract(error.value, '$.at') > {now} - cast(:age * 1000000 as integer)
    and json_extract(error.value, '$.at') <= {now};
