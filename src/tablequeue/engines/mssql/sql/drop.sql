-- Drop a queue's table; what was in it is gone. In one transaction with the history: a crash leaves all or nothing.
drop table if exists {queue};
