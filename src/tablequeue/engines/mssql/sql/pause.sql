-- Hand out no message of the queue until the time :until. Claims that have begun still end.
-- If two sessions pause it at once, one of them gets a duplicate key, and repeats it.
-- Index: the primary key. Locks: the row. A crash leaves the queue as it was.
declare @until datetime2(6) = cast(:until as datetime2(6));
update {paused} set until = @until where name = '{table}';
if @@rowcount = 0
    insert into {paused} (name, until) values ('{table}', @until);
