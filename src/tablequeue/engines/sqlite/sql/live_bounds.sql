-- The lowest and the highest id of the messages in a queue. Index: the primary key. Locks: none.
select (select min(id) from {queue}), (select max(id) from {queue});
