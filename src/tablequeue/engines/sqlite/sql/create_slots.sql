-- How many messages of a queue may be in progress, in one row. One transaction writes at a time, so a claim counts
-- those that are. Runs in one transaction: a crash leaves nothing.
create table {slots} (places integer not null) strict;
insert into {slots} values ({concurrency});
