-- Hand out no message of the queue until the time :until. Claims that have begun still end.
-- Index: the primary key. Locks: the row. A crash leaves the queue as it was.
insert into {paused} (name, until) values ('{table}', :until)
on duplicate key update until = values(until);
