-- Keep the :result of the message :id, which this transaction has completed.
-- Index: the primary key. A crash before the commit keeps nothing, and completes nothing.
declare @id bigint = :id;
declare @result nvarchar(max) = cast(:result as nvarchar(max));
insert into {results} (id, result) values (@id, @result);
