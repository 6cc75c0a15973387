-- Delete what the write :write staged, published or not, and what any write left behind a day ago or earlier.
-- In steps, because the locks of a statement are not escalated: a statement for a million messages takes three million
-- locks, and may run out of memory for them (error 1204). In a transaction of its own each step releases them.
-- Index: {table}__staged_order, the range of the write; then it reads the whole table, which holds the writes under way
-- only, and passes over what others are staging: two that waited for each other's rows would deadlock.
-- Locks: the rows that go. A crash leaves them for the next write.
declare @write varchar(255) = cast(:write as varchar(255));
declare @now datetime2(6) = {now};
declare @step int = 1000;
declare @deleted int = @step;
while @deleted = @step
begin
    delete top (@step) from {staged} with (rowlock)
    where write_id = @write;
    set @deleted = @@rowcount;
end;
set @deleted = @step;
while @deleted = @step
begin
    delete top (@step) from {staged} with (rowlock, readpast, readcommittedlock)
    where staged_at < dateadd(day, -1, @now);
    set @deleted = @@rowcount;
end;
