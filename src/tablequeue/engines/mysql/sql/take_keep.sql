-- Move up to :n ready messages to the history: finished, or under :token until they are completed.
-- Index: {claim_index}, then the primary key. Locks: the rows, until the transaction ends; locked rows are skipped. A
-- rollback puts all of them back, a crash before the commit too.
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
delete {queue} from {given} straight_join {queue} force index (primary) on {queue}.id = given.id
where {indexed};
