-- Return the result of the message :id. Index: the primary key. Locks: none.
select cast(result as text) from {results} where id = :id;
