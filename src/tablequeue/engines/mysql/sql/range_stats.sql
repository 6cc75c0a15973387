-- The messages of a subscription that are in the log alone: not claimed yet, in progress, and finished; and the age of
-- the first one not claimed. What the last 100,000 ranges finished is counted. If there are more ranges, it is an
-- estimate: as many messages as there are offsets from the first range on.
-- The first statement finds the position :start, the :end of the offsets, and the :last_id that has one.
-- Indexes: the primary keys, {table}__lease, that of the runs by last_id. Locks: none.
select
    greatest(
        (select last_offset + 1 from {ranges} order by id desc limit 1),
        (select first_offset + 1 from {runs} order by first_offset limit 1)
    ),
    (select first_offset + last_id - first_id + 1 from {runs} order by first_offset desc limit 1),
    (select max(last_id) from {runs});
select
    greatest(:end - :start, 0) + (select count(*) from {log} force index (primary) where id > :last_id),
    (
        select cast(coalesce(sum(messages - coalesce(json_length(left_ids), 0)), 0) as signed)
        from {ranges} force index ({table}__lease) where lease_until is not null
    ),
    (
        select cast(case
            when count(*) < 100000 then coalesce(sum(finished), 0)
            else greatest(sum(finished), max(last_offset) - (select first_offset from {ranges} order by id limit 1) + 1)
        end as signed)
        from (
            select last_offset, {finished_messages} as finished
            from {ranges} where messages > 0 order by id desc limit 100000
        ) as claimed
    ),
    (
        select timestampdiff(microsecond, pushed_at, {now}) / 1e6
        from {log}
        where id = case
            when :start < :end then (
                select first_id + :start - first_offset from {runs}
                where first_offset <= :start order by first_offset desc limit 1
            )
            else (select min(id) from {log} where id > :last_id)
        end
    );
