-- Drop a queue's tables; what was in them is gone. In one transaction: a crash leaves all or nothing.
drop table if exists {queue};
drop table if exists {history};
