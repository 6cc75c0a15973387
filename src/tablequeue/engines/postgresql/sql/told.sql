-- Those of the messages of :ids that are in progress and were told to stop. Index: the primary key. Locks: none.
select id from {queue} where id = any(cast(:ids as bigint[])) and cancelled_at is not null;
