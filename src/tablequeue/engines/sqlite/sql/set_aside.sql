-- Set the messages of :ids, which waiting has locked, aside under the token :token, with all that they have.
-- Index: the primary key. Locks: the database. In one transaction: a crash leaves all in the queue, or all aside.
insert into {moving} (
    {queue_row without lease_until}, expires_at
)
select
    {queue_row without lease_until with token = :token}, expires_at
from {queue}
where id in (select value from json_each(:ids));
delete from {queue} where id in (select value from json_each(:ids));
