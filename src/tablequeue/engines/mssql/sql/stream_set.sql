-- Set the stream :stream, whose row is locked, to :batch. :claim is the token of that batch, or null if it is
-- completed.
-- Index: the primary key. A crash before the commit leaves it where it was, and its messages too.
declare @stream varbinary(1020) = convert(varbinary(1020), cast(:stream as nvarchar(510)));
declare @batch bigint = :batch;
declare @completed bigint = :completed;
declare @claim uniqueidentifier = cast(:claim as uniqueidentifier);
declare @failures nvarchar(max) = cast(:failures as nvarchar(max));
declare @now datetime2(6) = {now};
update {streams} with (rowlock)
set batch = @batch,
    completed = @completed,
    token = @claim,
    claimed_at = case when @claim is not null then @now end,
    failures = @failures
where stream = @stream;
