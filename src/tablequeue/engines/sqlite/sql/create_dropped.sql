-- The tables of dropped queues, topics and subscriptions. Nothing new gets a table of such a name, so a process that
-- has a dropped queue open reaches no other one.
-- Locks: the database. A crash leaves nothing.
create table if not exists {dropped} (name text primary key) strict, without rowid;
