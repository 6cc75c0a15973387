-- What the log has: the number of its messages, their bytes, and the seconds since the first one was pushed. The bytes
-- are an estimate: as if all messages were as long as the last 1,000. Index: the primary key. Locks: none.
select
    messages,
    cast(coalesce(messages * (
        select avg(30 + length(cast(payload as blob)) + coalesce(length(headers), 0))
        from (select payload, headers from {log} order by id desc limit 1000)
    ), 0) as integer),
    (select ({now} - pushed_at) / 1e6 from {log} order by id limit 1)
from (select coalesce(max(id) - min(id) + 1, 0) as messages from {log});
