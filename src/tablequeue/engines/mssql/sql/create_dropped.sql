-- The tables of dropped queues, topics and subscriptions. Nothing new gets a table of such a name, so a process that
-- has a dropped queue open reaches no other one.
-- Under the creators' lock. A crash leaves nothing.
if object_id(N'{dropped}', N'U') is null
    create table {dropped} (
        name varchar(128) collate Latin1_General_100_BIN2 not null constraint pk_tq__dropped primary key clustered
    );
