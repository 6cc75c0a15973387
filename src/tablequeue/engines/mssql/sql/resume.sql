-- Hand out the messages of the queue again. Index: the primary key. Locks: the row.
delete from {paused} where name = '{table}';
