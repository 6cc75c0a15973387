-- Move up to :n ready messages to the history: finished, or under :token until they are completed.
-- Index: {table}__ready. Locks: the rows, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too.
-- [not paced]
with taken as (
-- [end]
-- [paced]
with {bucket}taken as (
-- [end]
    delete from {queue}
    -- [not fair]
    where id = any(array(
        select id from {queue}
        where {claimable}
        order by {order_by}
        limit {take_limit}
        for update skip locked
    ))
    -- [end]
    -- [fair]
    where id = any(array(
        {take_in_turn}
    ))
    -- [end]
    returning *
)
-- [paced]
, claimed as (
-- [end]
insert into {history} (
    {history_row}
)
select
    {history_row with
        attempts = attempts + 1
        token = cast(:token as uuid)
        first_popped_at = coalesce(first_popped_at, {now})
        popped_at = {now}
        finished_at = case when cast(:token as uuid) is null then {now} end
        consumer = cast(:consumer as text)}
from taken
returning
    -- [not paced]
    {claimed with lease_until = cast(null as timestamptz)}{and_slot};
    -- [end]
    -- [paced]
    {claimed with lease_until = cast(null as timestamptz) as lease_until}{and_slot}
), {spent}
select {of_claimed} from claimed;
-- [end]
