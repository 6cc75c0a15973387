-- Drop the log of a topic; what was in it is gone.
drop table if exists {log};
