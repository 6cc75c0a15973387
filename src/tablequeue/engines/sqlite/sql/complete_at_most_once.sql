-- Complete the messages of :ids that were delivered at most once under :token.
-- Index: the primary key of the history. Locks: the database. A crash leaves all of them completed, or none.
update {history}
set finished_at = {now}, token = null
where id in (select value from json_each(:ids)) and token = :token
returning id;
