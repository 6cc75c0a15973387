-- Note as a finished range what a :consumer has read by itself, :age seconds long: all before the offset :start.
-- Nothing is noted while ranges are in progress, which are counted. Indexes: the primary key, {table}__lease.
-- Locks: the database.
insert into {ranges} (first_offset, last_offset, messages, ids_sum, consumer, popped_at, finished_at)
select
    last_offset + 1, :start - 1, :start - 1 - last_offset, 0, :consumer, {now} - cast(:age * 1000000 as integer), {now}
from (select last_offset from {ranges} order by id desc limit 1)
where last_offset + 1 < :start and not exists (select 1 from {ranges} where lease_until is not null);
select count(*) from {ranges} where lease_until is not null;
