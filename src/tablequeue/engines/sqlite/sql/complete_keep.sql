-- Complete the messages of :ids that are held under :token: they move to the history.
-- Index: the primary key. Locks: the database. Both statements commit together: a crash leaves all of them completed,
-- or none.
insert into {history} (
    {history_row without token}
)
select
    {history_row without token with finished_at = {now}}
from {queue}
where id in (select value from json_each(:ids)) and token = :token;
delete from {queue}
where id in (select value from json_each(:ids)) and token = :token
returning id;
