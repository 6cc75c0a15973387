-- The first :n messages that were set aside, with ids above :after. Index: the primary key. Locks: none.
select
    {live_columns without lease_until finished_at}, token, expires_at
from {moving}
where id > :after
order by id
limit :n;
