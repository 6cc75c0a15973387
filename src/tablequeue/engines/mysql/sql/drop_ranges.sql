-- Drop the ranges of a subscription. It waits for transactions that use the table.
-- The catalogue forgot the subscription before: a crash leaves a table that the next create of this name drops.
drop table if exists {ranges};
