-- Fail message :id, delivered at most once under :token: it stays lost, and the error is kept.
-- Index: the primary key of the history. Locks: the row.
update {history}
set errors = json_array_append(coalesce(errors, '[]'), '$', json_object(
        'attempt', attempts, 'at', cast({now} as char), 'consumer', consumer, 'error', :error
    )), token = null
where id = :id and token = :token;
