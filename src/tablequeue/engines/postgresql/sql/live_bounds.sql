-- The lowest and the highest id of the messages in a queue. Index: the primary key. Locks: none.
select
    least((select min(id) from {queue}), (select min(first_id) from {packs})),
    greatest((select max(id) from {queue}), (select max(last_id) from {packs}));
