-- What ends an attempt or changes a message: complete, fail, release, extend, cancel, reschedule.

-- name: keep_results
-- Index: the primary key. A crash before the commit keeps nothing, and completes nothing.
-- [batches]
insert into {results} (id, batch_id, result) values (:id, :batch_id, :result);
-- [else]
insert into {results} (id, result) values (:id, :result);
-- [end]

-- name: result
-- Index: the primary key. Locks: none.
select result from {results} where id = :id;
