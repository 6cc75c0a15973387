-- Read the messages of :ids in the history, which a claim or a take under :token has moved there.
-- Index: the primary key. Locks: none.
select
    {claimed with lease_until = cast(null as timestamptz)}{and_slot}
from {history}
where id = any(cast(:ids as bigint[])) and token is not distinct from cast(:token as uuid);
