-- Begin a new run of the stream :stream, which fences the run before it.
-- If two open a new one at once, the primary key refuses the second one (error 2627), which tries again.
-- Index: the primary key. Locks: the row. A crash before the commit leaves the run before as it was.
declare @stream varbinary(1020) = convert(varbinary(1020), cast(:stream as nvarchar(510)));
update {streams} with (rowlock) set epoch = epoch + 1 where stream = @stream;
if @@rowcount = 0
    insert into {streams} (stream, epoch, batch, completed, failures) values (@stream, 1, 0, 0, N'{}');
