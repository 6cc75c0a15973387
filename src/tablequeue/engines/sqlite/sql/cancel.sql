-- Cancel the messages of :ids. Those in progress are told to stop. The others leave the queue: they move to the history
-- as cancelled, or are deleted if the queue keeps none. Returns each message, and whether it was told.
-- Index: the primary key. Locks: the database. All statements commit together: a crash leaves all or nothing.
select id, state = 'in_progress' from {queue} where id in (select value from json_each(:ids));
update {queue}
set cancelled_at = coalesce(cancelled_at, {now})
where id in (select value from json_each(:ids)) and state = 'in_progress';
-- [keep]
insert into {history} (
    {history_row without token},
    outcome
)
select
    {history_row without token with finished_at = {now}},
    'cancelled'
from {queue}
where id in (select value from json_each(:ids)) and state <> 'in_progress';
-- [end]
delete from {queue}
where id in (select value from json_each(:ids)) and state <> 'in_progress';
