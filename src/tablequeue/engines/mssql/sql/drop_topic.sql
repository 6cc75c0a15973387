-- Drop the log of a topic; what was in it is gone. In one transaction: a crash leaves all or nothing.
drop procedure if exists {log}__sequence;
drop table if exists {holes};
drop table if exists {runs};
drop table if exists {log};
