-- The first offset of the log, and the one after the last. Index: the primary key. Locks: none.
select
    coalesce((select min(id) from {log}), (select seq + 1 from sqlite_sequence where name = '{log}'), 1),
    coalesce((select seq + 1 from sqlite_sequence where name = '{log}'), 1);
