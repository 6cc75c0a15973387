-- Periodic messages: their tables and states.

-- name: enter_schedule
-- Insert a schedule if it is not there, as if it had been due now. Index: the primary key.
insert into {schedules} (name, last_due) values (:name, {now}) on conflict (name) do nothing;

-- name: schedule_state
-- When a schedule was last due and pushed, and what time it is by the database's clock. Index: the primary key.
select last_due, {now} from {schedules} where name = :name;
