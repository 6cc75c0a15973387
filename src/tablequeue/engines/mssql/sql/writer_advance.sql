-- Advance the writer :writer to :batch. Returns a row, or none if that batch was written before. READCOMMITTEDLOCK:
-- under READ_COMMITTED_SNAPSHOT too, the look waits for another one that is making the same writer. Two that look at
-- the same moment: the primary key refuses the second (error 2627), which is tried again.
-- Index: the primary key. Locks: the row, until the transaction ends, in which publish follows.
declare @writer varbinary(1020) = convert(varbinary(1020), cast(:writer as nvarchar(510)));
declare @batch bigint = :batch;
insert into {writers} (writer, batch)
select @writer, -1
where not exists (
    select 1 from {writers} as there with (rowlock, updlock, readcommittedlock) where there.writer = @writer
);
update {writers} with (rowlock)
set batch = @batch
output inserted.batch
where writer = @writer and batch < @batch;
