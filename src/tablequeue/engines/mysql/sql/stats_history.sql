-- How many finished messages are in the history: counted below 100,000, and from there on as the table's statistics
-- estimate it.
-- Index: {table}__finished, for 100,000 entries. Locks: none.
-- As a whole number: greatest() makes a decimal of the unsigned estimate.
select cast(case when counted < 100000 then counted else greatest(counted, coalesce((
    select table_rows from information_schema.tables
    where table_schema = {database} and table_name = '{table}_history'
), 0)) end as signed)
from (
    select count(*) as counted from (
        select 1 from {history} force index ({table}__finished) where finished_at is not null limit 100000
    ) as few
) as counts;
