-- Read the row of the stream :stream, and lock it until the transaction ends: one run acts at a time.
-- READCOMMITTEDLOCK: under READ_COMMITTED_SNAPSHOT too, it waits for the one before, and reads what that has committed.
-- Index: the primary key. Locks: the row.
declare @stream varbinary(1020) = convert(varbinary(1020), cast(:stream as nvarchar(510)));
select epoch, batch, completed, lower(replace(convert(char(36), token), '-', '')) as token, failures
from {streams} with (rowlock, updlock, readcommittedlock)
where stream = @stream;
