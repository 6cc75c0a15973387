-- The messages of :ids that are held under :token, and were told to stop, end: they move to the history as cancelled,
-- or are deleted if the queue keeps none. :error is kept.
-- Index: the primary key. Locks: the rows. A crash leaves all or nothing.
-- [keep]
with gone as (
    delete from {queue}
    where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid) and cancelled_at is not null
    returning *, case
        when cast(:error as text) is null then errors
        else {errors_and_one}
    end as all_errors
)
insert into {history} (
    {history_row without token},
    outcome
)
select
    {history_row without token with
        finished_at = {now}
        errors = all_errors},
    'cancelled'
from gone
returning id;
-- [end]
-- [none]
delete from {queue}
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid) and cancelled_at is not null
returning id;
-- [end]
