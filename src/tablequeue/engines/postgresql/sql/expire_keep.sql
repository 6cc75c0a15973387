-- Up to :n waiting messages whose time is over move to the history, as expired.
-- Index: {table}__expires. Locks: the rows; locked rows are skipped. A crash leaves all or nothing.
with expired as (
    delete from {queue}
    where id = any(array(
        select id from {queue}
        where {waiting} and expires_at <= {now}
        order by expires_at
        limit :n
        for update skip locked
    ))
    returning *
)
insert into {history} (
    {history_row without token}, outcome
)
select
    {history_row without token with finished_at = {now}}, 'expired'
from expired
returning id;
