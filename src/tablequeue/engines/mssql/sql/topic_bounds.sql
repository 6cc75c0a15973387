-- The first offset of the log, and the one after the last. Index: the primary key of the runs. Locks: none under
-- READ_COMMITTED_SNAPSHOT. Without that option it waits for a session that sequences.
select
    (select min(first_offset) + 1 from {runs}) as first,
    (select top (1) first_offset + last_id - first_id + 1 from {runs} order by first_offset desc) as after_last;
