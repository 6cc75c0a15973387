-- Move up to :n ready messages to the history: finished, or under :token until they are completed.
-- Index: {table}__ready. Locks: the database. The statements commit together: a rollback puts all of them back, a crash
-- before the commit too.
insert into {history} (
    {history_row}
)
select
    {history_row with
        attempts = attempts + 1
        token = :token
        first_popped_at = coalesce(first_popped_at, {now})
        popped_at = {now}
        finished_at = case when :token is null then {now} end
        consumer = :consumer}
from {queue}
-- [not fair]
where id in (select id from {queue} where {claimable} order by {order_by} limit {take_limit});
-- [end]
-- [fair]
where id in (
    {take_in_turn}
);
-- [end]
delete from {queue}
-- [not fair]
where id in (select id from {queue} where {claimable} order by {order_by} limit {take_limit})
-- [end]
-- [fair]
where id in (
    {take_in_turn}
)
-- [end]
returning
    {claimed with
        attempts = attempts + 1
        popped_at = {now}
        lease_until = null}{and_slot};
