-- The bytes of the log, about: as many messages as there are ids, as long as its last 1,000 are. Index: the primary
-- key.
-- Locks: none.
select cast(coalesce(
    (select max(id) - min(id) + 1 from {log}) * (
        select avg(30 + coalesce(length(cast(payload as blob)), 0) + coalesce(length(headers), 0))
        from (select payload, headers from {log} order by id desc limit 1000)
    ), 0
) as integer);
