-- Transactions of this database that have been prepared for a minute or longer: name, seconds. Locks: none.
select gid, cast(extract(epoch from clock_timestamp() - prepared) as bigint)
from pg_prepared_xacts
where database = current_database() and prepared < clock_timestamp() - interval '60 seconds'
order by prepared
limit 10;
