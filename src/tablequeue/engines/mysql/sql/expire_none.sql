-- Up to :n waiting messages whose time is over become dead letters: there is no history that could show them.
-- The first statement finds messages without locks. The second one locks by their ids those that still wait, and skips
-- locked rows. The others move them.
-- Index: {table}__expires. Locks: the rows. A crash leaves all or nothing.
select id from (
    (
        select id from {queue} force index ({table}__expires)
        where state = 'blocked' and expires_at <= {now} order by expires_at limit :n
    )
    union all
    (
        select id from {queue} force index ({table}__expires)
        where state = 'ready' and expires_at <= {now} order by expires_at limit :n
    )
    union all
    (
        select id from {queue} force index ({table}__expires)
        where state = 'scheduled' and expires_at <= {now} order by expires_at limit :n
    )
) as waiting
limit :n;
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where {waiting} and expires_at <= {now}
for update skip locked;
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = 'dead',
    errors = {errors_and_expired};
