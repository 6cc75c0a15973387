-- Complete the messages of :ids that are held under :token: this one statement moves them to the history.
-- Index: the primary key. Locks: the rows. A crash leaves all of them completed, or none.
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
