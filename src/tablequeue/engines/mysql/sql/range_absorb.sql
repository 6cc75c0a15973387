-- Delete the messages apart that a seek decides about: those that no consumer has had, whatever their offset, because
-- they are in the log; and those with an offset from :start on that the log still has, because they come again. With
-- :force, the latter even if they are in progress: their leases end. A message before :start that some consumer has had
-- stays, and so does one that the log does not have any more.
-- Found, locked by their ids, deleted, as in purge. Those that are locked are asked again: a consumer may have had one
-- since it was found.
-- Indexes: the primary keys, that of the runs by last_id; all messages apart are read. Locks: the rows; locked rows are
-- skipped, and range_remaining finds them. In one transaction with range_seek.
select id
from {queue} as message force index (primary)
where (:force or state <> 'in_progress') and (first_popped_at is null or exists (
        select 1
        from {runs} as run
        where run.last_id = (select min(last_id) from {runs} where last_id >= message.id)
            and first_id <= message.id and first_offset + message.id - first_id >= :start
            and first_offset > (select min(first_offset) from {runs})
    ));
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where (:force or state <> 'in_progress') and (first_popped_at is null or exists (
        select 1
        from {runs} as run
        where run.last_id = (select min(last_id) from {runs} where last_id >= message.id)
            and first_id <= message.id and first_offset + message.id - first_id >= :start
            and first_offset > (select min(first_offset) from {runs})
    ))
for update skip locked;
delete {queue} from {given} straight_join {queue} force index (primary) on {queue}.id = given.id;
