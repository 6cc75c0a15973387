-- By airline and day, computed anew by each run.
create materialized view delays as
select day, airline, count(*) as flights, avg(dep_delay) as mean_delay, count_if(dep_delay > 60) as late
from enriched
group by day, airline;
