-- Up to :n waiting messages whose time is over move to the history, as expired.
-- Index: {table}__expires. Locks: the database. Both statements commit together: a crash leaves all or nothing.
insert into {history} (
    {history_row without token}, outcome
)
select
    {history_row without token with finished_at = {now}}, 'expired'
from {queue}
where id in (select id from {queue} where {waiting} and expires_at <= {now} order by expires_at limit :n);
delete from {queue}
where id in (select id from {queue} where {waiting} and expires_at <= {now} order by expires_at limit :n)
returning id;
