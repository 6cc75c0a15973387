-- Replication slots that hold back the clean-up of dead rows by a million transactions or more: name, how many.
-- Locks: none.
select slot_name, age(xmin)
from pg_replication_slots
where age(xmin) > 1000000
order by age(xmin) desc
limit 10;
