-- Delete the messages apart that a seek decides about: those that no consumer has had, whatever their offset, because
-- they are in the log; and those with an offset from :start on that the log still has, because they come again. With
-- :force, the latter even if they are in progress: their leases end. A message before :start that some consumer has had
-- stays, and so does one that the log does not have any more.
-- Index: the primary keys; all messages apart are read. Locks: the database. In one transaction with range_seek.
delete from {queue}
where (:force or state <> 'in_progress')
    and (first_popped_at is null or (id >= :start and id in (select id from {log})));
