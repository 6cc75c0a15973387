-- The messages of :ids that are held under :token, and were told to stop, end: they move to the history as cancelled,
-- or are deleted if the queue keeps none. If :token is null, those whose lease has expired. :error is kept. The first
-- statement returns them; the others are about those that it returned.
-- Index: the primary key. Locks: the rows. A crash leaves all or nothing.
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where cancelled_at is not null and (token = :token or (:token is null and sweep_at <= {now}))
for update;
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set errors = {errors_and_one}
where cancelled_at is not null and :error is not null;
-- [keep]
insert into {history} (
    {history_row without token},
    outcome
)
select
    {history_row without token with
        id = message.id
        finished_at = {now}},
    'cancelled'
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where cancelled_at is not null
for update;
-- [end]
delete {queue}
from {given} straight_join {queue} force index (primary) on {queue}.id = given.id and cancelled_at is not null;
