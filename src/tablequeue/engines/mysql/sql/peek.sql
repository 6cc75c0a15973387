-- The first :n messages that are {state} with an id above :after, claiming none. Index: {table}__state. Locks: none.
select
    {live_columns}
from {queue} force index ({table}__state)
where state = '{state}'{unswept} and id > :after
order by id
limit :n;
