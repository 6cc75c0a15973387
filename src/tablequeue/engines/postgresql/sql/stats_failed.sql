-- The failed attempts of less than :age seconds ago, the consumer of each and how many seconds ago it was: of up to
-- :live messages of each state in the queue, and of the last :n that left it since then.
-- Indexes: those of the states; {table}__finished. Locks: none.
select error ->> 'consumer' as consumer, cast(extract(epoch from {now} - failed_at) as float8) as ago
from (
    (select errors from {queue} where state = 'ready' limit :live)
    union all
    (select errors from {queue} where state = 'scheduled' order by due_at desc limit :live)
    union all
    (select errors from {queue} where state = 'in_progress' order by lease_until desc limit :live)
    union all
    (select errors from {queue} where state = 'dead' order by id desc limit :live)
    union all
    (select errors from {queue} where state = 'blocked' limit :live)
    union all
    (
        select errors from {history}
        where finished_at > {now} - cast(:age as float8) * interval '1 second' and finished_at <= {now}
        order by finished_at desc
        limit :n
    )
) as message
cross join lateral jsonb_array_elements(message.errors) as error
cross join lateral cast(error ->> 'at' as timestamptz) as failed_at
where failed_at > {now} - cast(:age as float8) * interval '1 second' and failed_at <= {now};
