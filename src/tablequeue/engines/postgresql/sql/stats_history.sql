-- How many finished messages are in the history: counted below 100,000, and from there on as the planner estimates it,
-- by the rows on a page that autovacuum last found and the pages that there are. Index: {table}__finished, for 100,000
-- entries. Locks: none.
select case when counted < 100000 then counted else greatest(counted, (
    select cast(reltuples / nullif(relpages, 0) * (
        pg_relation_size(oid) / cast(current_setting('block_size') as integer)
    ) as bigint)
    from pg_class where oid = cast('{history}' as regclass)
)) end
from (
    select count(*) as counted from (select 1 from {history} where finished_at is not null limit 100000) as few
) as counts;
