-- Drop a queue's table and its packs; what was in them is gone. In one transaction with the history: a crash leaves all
-- or nothing.
drop view if exists {packed};
drop table if exists {packs};
drop table if exists {queue};
