-- From schema version 3 to 4: the schedules are in {schedules}, which is no queue's table.
-- Only if there is such a table, and no queue has that name.
alter table tq_schedules rename to tq__schedules;
