-- The failed attempts of less than :age seconds ago, the consumer of each and how many seconds ago it was: of up to
-- :live messages of each state in the queue, and of the last :n that left it since then.
-- Indexes: {table}__state; {table}__finished. Locks: none.
select error.consumer, timestampdiff(microsecond, error.failed_at, {now}) / 1e6 as ago
from (
    (select errors from {queue} force index ({table}__state) where state = 'ready' limit :live)
    union all
    (select errors from {queue} force index ({table}__state) where state = 'scheduled' limit :live)
    union all
    (select errors from {queue} force index ({table}__state) where state = 'in_progress' limit :live)
    union all
    (select errors from {queue} force index ({table}__state) where state = 'dead' order by id desc limit :live)
    union all
    (select errors from {queue} force index ({table}__state) where state = 'blocked' limit :live)
    union all
    (
        select errors from {history} force index ({table}__finished)
        where finished_at > {now} - interval :age second and finished_at <= {now}
        order by finished_at desc
        limit :n
    )
) as message
join json_table(
    message.errors, '$[*]' columns (consumer varchar(512) path '$.consumer', failed_at datetime(6) path '$.at')
) as error
where error.failed_at > {now} - interval :age second and error.failed_at <= {now};
