-- When a schedule was last due and pushed, and what time it is by the database's clock. Index: the primary key.
select last_due, {now} from {schedules} where name = :name;
