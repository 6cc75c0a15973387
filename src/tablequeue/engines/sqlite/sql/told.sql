-- Those of the messages of :ids that are in progress and were told to stop. Index: the primary key. Locks: none.
select id from {queue} where id in (select value from json_each(:ids)) and cancelled_at is not null;
