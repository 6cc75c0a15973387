-- Fail the messages of :ids that were delivered at most once under :token: they stay lost, and the error is kept.
-- Index: the primary key of the history. Locks: the rows. A crash leaves all of them failed, or none.
update {history}
set errors = coalesce(errors, '[]') || jsonb_build_array(jsonb_build_object(
        'attempt', attempts, 'at', {now}, 'consumer', consumer, 'error', cast(:error as text)
    )),
    token = null
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
returning id, 'lost';
