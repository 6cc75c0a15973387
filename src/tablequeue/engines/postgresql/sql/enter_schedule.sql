-- Insert a schedule if it is not there, as if it had been due now. Index: the primary key.
insert into {schedules} (name, last_due) values (:name, {now}) on conflict (name) do nothing;
