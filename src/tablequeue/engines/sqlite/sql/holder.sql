-- The token of the claim under which the message :id is in progress. Index: the primary key. Locks: none.
select token from {queue} where id = :id and state = 'in_progress';
