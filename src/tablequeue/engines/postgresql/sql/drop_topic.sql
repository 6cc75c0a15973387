-- Drop the log of a topic; what was in it is gone. In one transaction: a crash leaves all or nothing.
-- [segments]
drop function if exists {log}__trim;
drop function if exists {log}__needed;
drop table if exists {log}__segments;
-- [end]
drop function if exists {log}__publish;
drop function if exists {log}__reserve;
drop function if exists {log}__sequence_all;
drop function if exists {log}__sequence;
drop table if exists {parts};
drop table if exists {holes};
drop table if exists {runs};
drop table if exists {log};
