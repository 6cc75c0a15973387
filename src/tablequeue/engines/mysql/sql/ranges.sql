-- Ranges of a topic's log: how a subscription claims, completes, extends and ends them.

-- name: range_hold
-- Lock the range under :token, if it is in progress. Return it: its ids, and those of the messages that have left it
-- and that were detached.
-- The second statement is for a caller's transaction; see range_complete.
-- Indexes: {table}__token, the primary key. Locks: the row.
-- name: range_hold.by_token
select id, pieces, left_ids, apart_ids
from {ranges} force index ({table}__token)
where token = :token and lease_until is not null
for update;
-- name: range_hold.by_id
select id, pieces, left_ids, apart_ids
from {ranges} force index (primary)
where id = :id and token = :token and lease_until is not null
for update;

-- name: range_detach
-- The messages of :ids, which range :id holds, become rows of the subscription's queue: ready after :delay seconds, or
-- dead letters if :attempts is :max_attempts.
-- A seek leaves no message both detached and in the log. Older versions did: then this is its state, unless a consumer
-- holds it detached.
-- The first statement is for a caller's transaction: at REPEATABLE READ, to delete what is not there locks gaps.
-- Indexes: the primary keys. Locks: the rows. In one transaction with range_mark or range_expire.
-- name: range_detach.find
select message.id from {given} straight_join {history} as message force index (primary) on message.id = given.id;
-- name: range_detach.forget
delete {history}
from {given} straight_join {history} force index (primary) on {history}.id = given.id;
-- name: range_detach.add
insert into {queue} (
    id, state, attempts, pushed_at, due_at, first_popped_at, popped_at, group_key, producer, consumer, headers, errors,
    payload
)
select
    log.id,
    case when :attempts >= :max_attempts then 'dead' when :delay > 0 then 'scheduled' else 'ready' end,
    :attempts, log.pushed_at,
    case when :attempts < :max_attempts and :delay > 0 then {now} + interval :delay second end,
    held.popped_at, held.popped_at, log.group_key, log.producer, held.consumer, log.headers,
    case
        when :error is not null then json_array(json_object(
            'attempt', :attempts, 'at', cast({now} as char), 'consumer', held.consumer, 'error', :error
        ))
    end,
    log.payload
from {ranges} as held
straight_join {given}
straight_join {log} as log force index (primary) on log.id = given.id
where held.id = :id
on duplicate key update
    attempts = if({queue}.state = 'in_progress', {queue}.attempts, values(attempts)),
    due_at = if({queue}.state = 'in_progress', {queue}.due_at, values(due_at)),
    errors = if({queue}.state = 'in_progress', {queue}.errors, values(errors)),
    state = if({queue}.state = 'in_progress', {queue}.state, values(state));

-- name: range_mark
-- Mark messages of range :id as left: :left_ids are all :number of them that have left it, :apart_ids those of them
-- that were detached. The range is finished when all have left it.
-- Index: the primary key. Locks: the row. A crash leaves them in progress until the lease expires.
update {ranges}
set left_ids = case when messages > :number then :left_ids end,
    apart_ids = :apart_ids,
    finished_at = {now},
    lease_until = case when messages > :number then lease_until end
where id = :id;

-- name: range_purge
-- Delete the ranges that have no message any more at or after the offset :start, but for the first one, whose lock is
-- that of range_pump, and the last one, after which the next claim begins.
-- Index: the primary key. Locks: the rows. A crash leaves all or nothing.
delete {ranges}
from (select max(id) as id from {ranges}) as last
straight_join {ranges} on {ranges}.id > 1 and {ranges}.id < last.id
where {ranges}.last_offset < :start and {ranges}.lease_until is null;

-- name: range_expired
-- Up to :n ranges whose lease has expired, with their ids, and those of the messages that have left them.
-- The second statement locks range :id if that is so still, for a packet that detaches its messages.
-- Index: {table}__lease, the primary key. Locks: the rows; locked rows are skipped.
-- name: range_expired.find
select id, pieces, left_ids
from {ranges} force index ({table}__lease)
where lease_until <= {now}
order by lease_until
limit :n
for update skip locked;
-- name: range_expired.lock
select id
from {ranges} force index (primary)
where id = :id and lease_until <= {now} and left_ids <=> :left_ids
for update skip locked;

-- name: range_expire
-- Range :id, whose lease has expired, is not in progress any more. The messages that had not left it are detached.
-- Index: the primary key. Locks: the row. In one transaction with range_detach.
update {ranges} set lease_until = null where id = :id;

-- name: range_pump
-- Move the next messages of the log to the queue of an ordered subscription, and the position past them.
-- The position is found by range_last, the runs by a statement of range_claim. The part computes :pieces and :ids, the
-- messages from the offset :start to :end. The statements are one transaction and one round trip. The :id of the new
-- range is that of the last one plus one. If another session has added one meanwhile, that is a duplicate key, and
-- nothing is moved.
-- A message without a group, which an older log may have, is in the group without a name.
-- Indexes: the primary keys. Locks: the rows, for as long as the server needs. A crash leaves all or nothing.
insert into {ranges} (id, first_offset, last_offset, messages, ids_sum, pieces, popped_at, finished_at)
values (:id, :start, :end, 0, 0, :pieces, {now}, {now});
delete {history} from {given} straight_join {history} force index (primary) on {history}.id = given.id;
insert into {queue} (id, state, pushed_at, group_key, producer, headers, payload)
select log.id, '{pushed_ready}', log.pushed_at, coalesce(log.group_key, ''), log.producer, log.headers, log.payload
from {given} straight_join {log} as log force index (primary) on log.id = given.id
on duplicate key update id = {queue}.id;

-- name: range_stay
-- As range_wait, in a packet, if range :id is the last one still: then what was found before still holds. Else
-- @tq_stays is false, or another session has just added a range, and that is a duplicate key.
-- Index: the primary key. Locks: the new row.
insert into {ranges} (id, first_offset, last_offset, messages, ids_sum, pieces, popped_at, finished_at)
select :id + 1, last_offset + 1, last_offset, 0, 0, '[]', utc_timestamp(6), utc_timestamp(6)
from (select id, last_offset from {ranges} order by id desc limit 1) as last
where id = :id;
set @tq_stays = @tq_stays and row_count();

-- name: range_claim
-- Claim the next range of up to :n messages under a new lease: one row for all of them. Nothing if there are fewer than
-- :least. Three round trips in autocommit: the runs; the new row and a look at it; and the messages, without a lock.
-- The first statement finds runs from :start on, which is a guess of the position, and the first offset of the log. The
-- runs come back as :runs, and :end is their last offset. No run ever gives an offset another id, so it does not matter
-- how old they are. If they do not have all of the range, nothing is claimed.
-- The id of a range is that of the last one plus one. If another session has claimed it meanwhile, that is a duplicate
-- key, and the insert is repeated. It reads without locks, at READ COMMITTED.
-- Each piece of ids of the range repeats the condition of the last statement.
-- Indexes: the primary keys. Locks: the new row.
-- A consumer that dies leaves its range in progress; sweep detaches its messages when the lease has expired.
-- name: range_claim.runs
(
    select first_offset, first_id, last_id, (select min(first_offset) + 1 from {runs})
    from {runs} where first_offset <= :start order by first_offset desc limit 1
)
union all
(
    select first_offset, first_id, last_id, (select min(first_offset) + 1 from {runs})
    from {runs} where first_offset > :start order by first_offset limit :look
);
-- name: range_claim.insert
insert into {ranges} (
    id, first_offset, last_offset, messages, ids_sum, pieces, token, consumer, popped_at, lease_until
)
select
    last_insert_id(id + 1), begins, ends, ends - begins + 1, sum((low + high) * (high - low + 1) div 2),
    concat('[', group_concat('[', low, ',', high, ']' order by first_offset), ']'),
    :token, :consumer, {now}, {now} + interval :lease second
from (
    select
        id, begins, ends, first_offset, run.low + greatest(begins - first_offset, 0) as low,
        least(run.high, run.low + ends - first_offset) as high
    from (
        select
            id, greatest(last_offset + 1, :first_offset) as begins,
            least(greatest(last_offset + 1, :first_offset) + :n - 1, :end) as ends
        from {ranges} order by id desc limit 1
    ) as last
    straight_join {run}
) as piece
where low <= high and ends - begins + 1 >= :least and {unpaused}
group by id, begins, ends
having sum(high - low + 1) = ends - begins + 1;
-- name: range_claim.find
select pieces, last_offset, cast(popped_at as char), cast(lease_until as char)
from {ranges}
where id = last_insert_id() and token = :token;
-- name: range_claim.read
select
    {claimed with
        attempts = 1
        pushed_at = cast(pushed_at as char)
        popped_at = :popped_at
        lease_until = :lease_until
        priority = 0
        dedup_key = null
        due_at = null
        errors = null}
from {log} force index (primary)
where id between :low and :high;

-- name: range_due
-- Indexes: {table}__lease, {table}__state; one entry of each. Locks: none.
select
    exists (select 1 from {ranges} force index ({table}__lease) where lease_until <= {now}),
    exists (select 1 from {queue} force index ({table}__state) where state = 'scheduled' and sweep_at <= {now})
    or exists (select 1 from {queue} force index ({table}__state) where state = 'in_progress' and sweep_at <= {now}),
    exists (select 1 from {queue} force index ({table}__state) where state = 'ready');

-- name: range_complete
-- The second statement is for a caller's transaction, which finds the :id first (range_id). By the token, it would lock
-- the gap between two tokens under REPEATABLE READ, where the token of the next claim may belong.
-- Indexes: {table}__token, the primary key. Locks: the row. A crash leaves it in progress until its lease expires.
-- name: range_complete.by_token
update {ranges} force index ({table}__token)
set finished_at = {now}, lease_until = null
where token = :token and lease_until is not null and messages = :number and ids_sum = :sum and left_ids is null;
-- name: range_complete.by_id
update {ranges} force index (primary)
set finished_at = {now}, lease_until = null
where id = :id and token = :token and lease_until is not null
    and messages = :number and ids_sum = :sum and left_ids is null;

-- name: range_id
-- The range that was claimed under :token. No row, if the snapshot of the transaction is older than the claim.
-- Index: {table}__token. Locks: none.
select id from {ranges} force index ({table}__token) where token = :token;

-- name: range_extend
-- Extend the lease on range :id: it ends :lease seconds from now. In one transaction with range_hold.
-- Index: the primary key. Locks: the row.
update {ranges} set lease_until = {now} + interval :lease second where id = :id;
select lease_until from {ranges} where id = :id;
