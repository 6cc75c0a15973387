-- The bytes of the log with its index, as the statistics of the table have them. Locks: none.
select cast(coalesce(sum(data_length + index_length), 0) as signed)
from information_schema.tables
where table_schema = {database} and table_name = '{table}';
