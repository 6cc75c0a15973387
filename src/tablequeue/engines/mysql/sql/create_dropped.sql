-- The tables of dropped queues, topics and subscriptions. Nothing new gets a table of such a name, so a process that
-- has a dropped queue open reaches no other one.
-- Under the creators' lock. Like every DDL it commits by itself; a crash leaves the table whole, or none.
create table if not exists {dropped} (
    name varchar(64) character set ascii collate ascii_bin primary key
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the dropped tables';
