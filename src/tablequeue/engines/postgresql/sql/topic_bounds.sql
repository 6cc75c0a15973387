-- The first offset of the log, and the one after the last. Indexes: those of the runs. Locks: none.
select
    (select min(first_offset) + 1 from {runs}),
    (select first_offset + last_id - first_id + 1 from {runs} order by first_offset desc limit 1);
