-- The first offset of the log, and the one after the last. Index: the primary key of the runs. Locks: none.
select
    (select first_offset + 1 from {runs} order by first_offset limit 1),
    (select first_offset + last_id - first_id + 1 from {runs} order by first_offset desc limit 1);
