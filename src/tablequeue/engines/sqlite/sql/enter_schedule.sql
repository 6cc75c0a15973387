-- Enter a schedule, if it is not there: nothing was due before now. Index: the primary key.
insert into {schedules} (name, last_due) values (:name, {now}) on conflict (name) do nothing;
