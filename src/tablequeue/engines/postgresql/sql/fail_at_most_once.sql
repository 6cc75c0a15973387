-- Fail the messages of :ids that were delivered at most once under :token: they stay lost, and the error is kept.
-- Index: the primary key of the history. Locks: the rows. A crash leaves all of them failed, or none.
update {history}
set errors = {errors_and_one},
    token = null
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
returning id, 'lost';
