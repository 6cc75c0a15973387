-- Read the messages of :ids that are in progress under :token. Index: the primary key. Locks: none.
select
    {live_columns}
from {queue}
where id in (select value from json_each(:ids)) and token = :token
order by id;
