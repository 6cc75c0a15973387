-- Claim the next ready message and up to :n - 1 that are blocked behind it in its group, in order of ids, under one
-- lease: lock the first one, find the others without locks, lock those that no other transaction is changing, and mark
-- them. The third statement tells of each whether it is due. No message of the group is promoted while one is in
-- progress, so the group is closed until all of them are finished.
-- Indexes: {claim_index}, {table}__blocked, the primary key. Locks: the rows; locked ones are skipped. A claim must
-- lock the first message before it claims the others.
-- A crash before the commit claims none.
select id
from {queue} force index ({claim_index})
where {claimable}
order by id
limit 1
for update skip locked;
select message.id
from {queue} as head straight_join {queue} as message force index ({table}__blocked)
    on message.group_key = head.group_key
where head.id = :id and message.state = 'blocked'{in_time_of_message}
order by message.id
limit :look;
select
    {claimed with
        id = message.id
        attempts = attempts + 1
        popped_at = {now}
        lease_until = {now} + interval :lease second},
    coalesce(due_at <= {now}, true) as is_due
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where state in ('ready', 'blocked')
for update skip locked;
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = :popped_at,
    first_popped_at = coalesce(first_popped_at, :popped_at),
    lease_until = :lease_until,
    in_run = message.id;
