-- The messages at the offsets from :start on and before :end. Index: the primary key. Locks: none.
select id as message_offset, id, payload, headers, group_key, producer, pushed_at
from {log}
where id >= :start and id < :end
order by id;
