-- Fail message :id, delivered at most once under :token: it stays lost, and the error is kept.
-- Index: the primary key of the history. Locks: the row.
declare @id bigint = :id;
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @error nvarchar(max) = cast(:error as nvarchar(max));
declare @now datetime2(6) = {now};
update {history} with (rowlock)
set errors = {errors_and_one},
    token = null
output 'lost' as state
where id = @id and token = @token;
