-- Drop the log of a topic; what was in it is gone. It waits for transactions that use the tables.
-- The catalogue forgot the topic before: a crash leaves tables that the next create of this name drops.
drop table if exists {holes};
drop table if exists {runs};
drop table if exists {log};
