-- The lowest and the highest id in the history. Index: the primary key. Locks: none.
select (select min(id) from {history}), (select max(id) from {history});
