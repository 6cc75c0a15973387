-- Return the result of the message :id. Index: the primary key. Locks: none.
select result from {results} where id = :id;
