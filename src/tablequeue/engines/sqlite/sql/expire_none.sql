-- Up to :n waiting messages whose time is over become dead letters: there is no history that could show them.
-- Index: {table}__expires. Locks: the database. A crash leaves all or nothing.
update {queue}
set state = 'dead',
    errors = {errors_and_expired}
where id in (select id from {queue} where {waiting} and expires_at <= {now} order by expires_at limit :n)
returning id;
