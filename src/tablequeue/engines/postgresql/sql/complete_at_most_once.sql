-- Complete the messages of :ids that were delivered at most once under :token.
-- Index: the primary key of the history. Locks: the rows. A crash leaves all of them completed, or none.
update {history}
set finished_at = {now}, token = null
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
returning id;
