-- The tables of dropped queues, topics and subscriptions. Nothing new gets a table of such a name, so a process that
-- has a dropped queue open reaches no other one.
-- Under the creators' lock. A crash leaves nothing.
create table if not exists {dropped} (name text constraint tq__dropped_name primary key);
