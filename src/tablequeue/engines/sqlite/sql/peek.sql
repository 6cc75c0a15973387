-- The first :n messages that are {state} with an id above :after, claiming none. Index: {table}__{state}. Locks: none.
select
    {live_columns}
from {queue}
where state = '{state}' and id > :after
order by id
limit :n;
