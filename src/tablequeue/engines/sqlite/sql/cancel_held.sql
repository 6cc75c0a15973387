-- The messages of :ids that are held under :token, and were told to stop, end: they move to the history as cancelled,
-- or are deleted if the queue keeps none. If :token is null, those whose lease has expired. :error is kept.
-- Index: the primary key. Locks: the database. All statements commit together: a crash leaves all or nothing.
update {queue}
set errors = {errors_and_one}
where id in (select value from json_each(:ids)) and cancelled_at is not null
    and (token = :token or (:token is null and lease_until <= {now})) and :error is not null;
-- [keep]
insert into {history} (
    {history_row without token},
    outcome
)
select
    {history_row without token with finished_at = {now}},
    'cancelled'
from {queue}
where id in (select value from json_each(:ids)) and cancelled_at is not null
    and (token = :token or (:token is null and lease_until <= {now}));
-- [end]
delete from {queue}
where id in (select value from json_each(:ids)) and cancelled_at is not null
    and (token = :token or (:token is null and lease_until <= {now}))
returning id;
