-- What the log has: the number of its messages, the bytes with the index as the statistics of the table have them, and
-- the seconds since the first message was pushed. Messages in holes are not counted.
-- Indexes: the primary keys, that of the runs by last_id. Locks: none.
select
    (select first_offset + last_id - first_id from {runs} order by first_offset desc limit 1)
        - (select first_offset from {runs} order by first_offset limit 1)
        + (select count(*) from {log} where id > (select last_id from {runs} order by last_id desc limit 1)),
    (
        select cast(coalesce(sum(data_length + index_length), 0) as signed)
        from information_schema.tables
        where table_schema = {database} and table_name = '{table}'
    ),
    (
        select timestampdiff(microsecond, pushed_at, {now}) / 1e6
        from {log} where pushed_at is not null order by id limit 1
    );
