-- Finish those of :ids that are held under :token: they move to the history in this one statement.
-- Index: the primary key. Locks: the rows. A crash finishes all or none.
with finished as (
    delete from {queue}
    where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
    returning *
)
insert into {history} (
    {history_row without token}
)
select
    {history_row without token with finished_at = {now}}
from finished
returning id;
