-- Move the next messages of the log to the queue of an ordered subscription, and the position past them.
-- The position is found by range_last, the runs by a statement of range_claim. The part computes :pieces and :ids, the
-- messages from the offset :start to :end. The statements are one transaction and one round trip. The :id of the new
-- range is that of the last one plus one. If another session has added one meanwhile, that is a duplicate key, and
-- nothing is moved.
-- A message without a group, which an older log may have, is in the group without a name.
-- Indexes: the primary keys. Locks: the rows, for as long as the server needs. A crash leaves all or nothing.
insert into {ranges} (id, first_offset, last_offset, messages, ids_sum, pieces, popped_at, finished_at)
values (:id, :start, :end, 0, 0, :pieces, {now}, {now});
delete {history} from {given} straight_join {history} force index (primary) on {history}.id = given.id;
insert into {queue} (id, state, pushed_at, group_key, producer, headers, payload)
select log.id, '{pushed_ready}', log.pushed_at, coalesce(log.group_key, ''), log.producer, log.headers, log.payload
from {given} straight_join {log} as log force index (primary) on log.id = given.id
on duplicate key update id = {queue}.id;
