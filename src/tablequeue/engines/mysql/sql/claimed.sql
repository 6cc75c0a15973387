-- The messages of :ids that a claim has claimed under :token. They are read after its commit, so that nothing is locked
-- while they are sent. If messages are delivered at most once, they are in the history.
-- Index: the primary key. Locks: none.
-- [at_least_once]
select
    {claimed with
        id = message.id}{and_slot}
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where token = :token;
-- [at_most_once]
select
    {claimed with
        id = message.id
        lease_until = cast(null as datetime(6))}
-- [at_most_once fair]
    , cast(conv(left(md5(coalesce(group_key, '')), 16), 16, 10) as unsigned) >> 1 as slot
-- [at_most_once]
from {given} straight_join {history} as message force index (primary) on message.id = given.id
where token = :token;
-- [end]
