-- Set the messages of :ids, which waiting has locked, aside under the token :token, with all that they have.
-- Index: the primary key. Locks: the rows. A crash leaves all in the queue, or all aside.
with gone as (
    delete from {queue} where id = any(cast(:ids as bigint[])) returning *
)
insert into {moving} (
    {queue_row without lease_until}, expires_at
)
select
    {queue_row without lease_until with token = cast(:token as text)}, expires_at
from gone;
