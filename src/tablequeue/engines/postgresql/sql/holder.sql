-- The token of the claim under which the message :id is in progress. Index: the primary key. Locks: none.
select replace(cast(token as text), '-', '') from {queue} where id = :id and state = 'in_progress'
union all
select replace(cast(token as text), '-', '') from {packed} where :id between first_id and last_id and id = :id;
