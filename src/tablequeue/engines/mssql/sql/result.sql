-- Return the result of the message :id. Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT; else shared
-- ones.
declare @id bigint = :id;
select result from {results} where id = @id;
