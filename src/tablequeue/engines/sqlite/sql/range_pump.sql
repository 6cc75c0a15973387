-- Move the next :n messages of the log to the queue of an ordered subscription, and the position past them.
-- A message without a group, which an older log may have, is in the group without a name.
-- Indexes: the primary keys. Locks: the database. A crash leaves all or nothing.
insert into {ranges} (first_offset, last_offset, messages, ids_sum, token, popped_at, finished_at)
select first, last, 0, 0, :token, {now}, {now}
from (
    select first, min(first + :n - 1, (select max(id) from {log})) as last
    from (
        select max(last_offset + 1, (select min(id) from {log})) as first from {ranges} order by id desc limit 1
    )
)
where last >= first;
delete from {history}
where id between (select first_offset from {ranges} where token = :token)
    and (select last_offset from {ranges} where token = :token);
insert into {queue} (id, state, pushed_at, group_key, producer, headers, payload)
select log.id, '{pushed_ready}', log.pushed_at, coalesce(log.group_key, ''), log.producer, log.headers, log.payload
from {ranges} as ranges
join {log} as log on log.id between first_offset and last_offset
where ranges.id = (select max(id) from {ranges}) and ranges.token = :token
on conflict (id) do nothing;
