-- Fail message :id, delivered at most once under :token: it stays lost, and the error is kept.
-- Index: the primary key of the history. Locks: the row.
update {history}
set errors = coalesce(errors, '[]') || jsonb_build_array(jsonb_build_object(
        'attempt', attempts, 'at', {now}, 'consumer', consumer, 'error', cast(:error as text)
    )),
    token = null
where id = :id and token = cast(:token as uuid)
returning 'lost';
