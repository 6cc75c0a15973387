-- Fail message :id, delivered at most once under :token: it stays lost, and the error is kept.
-- Index: the primary key of the history. Locks: the database.
update {history}
set errors = json_insert(
        coalesce(errors, '[]'), '$[#]',
        json_object('attempt', attempts, 'at', {now}, 'consumer', consumer, 'error', :error)
    ),
    token = null
where id = :id and token = :token
returning 'lost';
