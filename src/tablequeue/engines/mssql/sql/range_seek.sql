-- Let the next claim begin at :start. The row has no messages. Locks: range_wait comes before it.
declare @start bigint = :start;
declare @now datetime2(6) = {now};
insert into {ranges} (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (@start, @start - 1, 0, 0, @now, @now);
