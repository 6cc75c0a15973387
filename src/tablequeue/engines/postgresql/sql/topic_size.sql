-- What the log has: the number of its messages, the bytes with the index, and the seconds since the first one was
-- pushed. Messages in holes are not counted. A table without partitions has an empty pg_partition_tree.
-- Indexes: the primary keys, that of the runs by last_id. Locks: none.
select
    (select first_offset + last_id - first_id from {runs} order by first_offset desc limit 1)
        - (select min(first_offset) from {runs})
        + (select count(*) from {log} where id > {last_id}),
    (
        select cast(coalesce(sum(pg_total_relation_size(relid)), 0) as bigint)
        from (
            select relid from pg_partition_tree(cast('{log}' as regclass))
            union
            select cast('{log}' as regclass)
        ) as segments
    ),
    (select cast(extract(epoch from {now} - pushed_at) as float8) from {log} order by id limit 1);
