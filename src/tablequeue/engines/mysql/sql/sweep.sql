-- Up to :n messages that are due, and up to :n whose lease has expired, become ready. The latter become dead letters if
-- they have no attempts left. The expired lease is kept as an error of the attempt.
-- The first statement finds messages without locks, and mostly none: one round trip. The second one locks by their ids
-- those that are still due or expired, and skips locked rows; it returns which of them were told to stop, which
-- cancel_held ends. The others change them.
-- Indexes: {table}__state, the primary key. A crash leaves all or nothing.
(
    select id from {queue} force index ({table}__state)
    where state = 'scheduled' and sweep_at <= {now} order by sweep_at limit :n
)
union all
(
    select id from {queue} force index ({table}__state)
    where state = 'in_progress' and sweep_at <= {now} order by sweep_at limit :n
);
select message.id, message.cancelled_at is not null as told
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where sweep_at <= {now}
for update skip locked;
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = case when attempts >= :max_attempts{in_time} then 'dead'{or_blocked} else 'ready' end,
    errors = {errors_and_lost},
    token = null,
    lease_until = null{out_of_run}
where state = 'in_progress' and cancelled_at is null;
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = 'ready'
where state = 'scheduled';
