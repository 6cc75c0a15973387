-- Claims and takes of messages.

-- name: claim
-- Claim one message under a new lease: it is claimed by one consumer only, because SKIP LOCKED skips the rows that
-- another claim has locked. One packet in autocommit: whether claims are paused, the update, then the row of the id
-- that it remembered, without a lock. The update would lock what it reads of the pauses, and so wait for a transaction
-- that pauses or resumes. The last one asks for LAST_INSERT_ID() in SQL, because MariaDB's response to the update lacks
-- it if the table has triggers.
-- A claim of several messages is another packet, of claim_limit, claim_many and claimed.
-- It is not read if nothing was claimed: the id would be that of a claim before, which in the second claim of a batch
-- has the same token.
-- The state is checked again: a server that reads SKIP LOCKED and locks nothing must not claim for two.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- Index: {claim_index}, which has the order of the queue: if the rows had to be sorted, all of them would be locked. It
-- is forced, because with outdated statistics the optimizer may read the primary key instead. If the order is that of
-- the ids, it begins at :low_water, so that dead entries before it are not walked again (low_water.py).
-- A consumer that dies leaves its message in progress; sweep returns it when the lease has expired.
select count(*) into @tq_paused from {paused} where name = '{table}' and until > {now};
update (
    select last_insert_id(id) as claimed from {queue} force index ({claim_index})
    where {free}{above_mark} and @tq_paused = 0
    order by {order_by}
    limit 1
    for update skip locked
) as next
straight_join {queue} as message force index (primary) on message.id = next.claimed
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = {now} + interval :lease second
where {indexed};
select
    {claimed}
from {queue}
where row_count() > 0 and id = last_insert_id() and token = :token;

-- name: claim_find
-- Find the messages to claim or take in a caller's transaction. Its isolation level is mostly REPEATABLE READ, the
-- default. At that level a locking range read, as that of claim_many, locks the gaps between the rows too; and a
-- locking read by id locks the newest row, whatever the snapshot shows, and keeps the lock if the row does not match.
-- So `find` finds messages in that transaction without locks, and `read` locks as many as are wanted by their ids.
-- Between the two, on a connection of our own at READ UNCOMMITTED (within.py): `pin` locks the index entries of the
-- messages to claim, which stay ready until that connection lets go; `pinned` reads these, and `newest` those that the
-- caller's transaction sees ready and are so in their newest version; `unlocked` tells which of them no transaction has
-- locked. The others may be those that the caller's transaction has changed: `still` locks them, and tells whether they
-- are ready. `foreign` tells which messages are not held under :token: if a finish has locked one, it is refused.
-- `lock` is for claims on a connection of our own that find messages first, in a fair queue; they are read after the
-- commit (claimed).
-- Indexes: {claim_index}, the primary key. Locks: the rows; of `pin` the entries of {claim_index} alone, shared, until
-- the rows are locked.
-- name: claim_find.find
select id, due_at, priority
from {queue} force index ({claim_index})
where {claimable}
order by {order_by}
limit :look;
-- name: claim_find.pin
-- [in_order]
select id
from {queue} force index ({claim_index})
where {pinnable}
order by {order_by}
limit :n
-- [fair]
select message.id
from json_table(:rows, '$[*]' columns (id bigint path '$[0]', slot bigint path '$[1]')) as given
straight_join {queue} as message force index ({claim_index})
    on message.waiting = 1 and message.slot = given.slot and message.id = given.id
limit :n
-- [end]
{share_skip_locked};
-- name: claim_find.pinned
select message.id, due_at, priority
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where {free};
-- name: claim_find.newest
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where {free};
-- name: claim_find.unlocked
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
{share_skip_locked};
-- name: claim_find.foreign
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where not (message.token <=> :token);
-- name: claim_find.still
select message.id, {free}
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
limit :n
for update skip locked;
-- name: claim_find.read
select
    {claimed with
        id = message.id
        attempts = attempts + 1
        popped_at = {now}
        lease_until = {now} + interval :lease second}{and_slot}
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where {free}
limit :n
for update skip locked;
-- name: claim_find.lock
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where {free}
limit :n
for update skip locked;

-- name: take
-- Index: {claim_index}, then the primary key. Locks: the rows, until the transaction ends; locked rows are skipped. A
-- rollback puts all of them back, a crash before the commit too.
-- name: take.lock
select
    {claimed with
        attempts = attempts + 1
        popped_at = {now}
        lease_until = cast(null as datetime(6))}
from {queue} force index ({claim_index})
where {claimable}
order by {order_by}
limit :n
for update skip locked;
-- name: take.change
-- [keep]
insert into {history} (
    {history_row}
)
select
    {history_row with
        id = message.id
        attempts = attempts + 1
        token = :token
        first_popped_at = coalesce(first_popped_at, :popped_at)
        popped_at = :popped_at
        finished_at = case when :token is null then cast(:popped_at as datetime(6)) end
        consumer = :consumer}
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where {indexed}
for update;
-- [end]
delete {queue}, {live_keys}
from {given} straight_join {queue} force index (primary) on {queue}.id = given.id
{with_key}
where {indexed};

-- name: claim_many
-- Claim up to :n messages under a new lease, as claim does one: lock them, then mark them. They are read after the
-- commit: see claimed.
-- Index: {claim_index}, then the primary key. Locks: the rows; rows that another claim has locked are skipped.
-- A crash before the commit claims none.
-- name: claim_many.lock
select id
from {queue} force index ({claim_index})
where {claimable}
order by {order_by}
limit :n
for update skip locked;
-- name: claim_many.change
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = :popped_at,
    first_popped_at = coalesce(first_popped_at, :popped_at),
    lease_until = :lease_until
where {indexed};
