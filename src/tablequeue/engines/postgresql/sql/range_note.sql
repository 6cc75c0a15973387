-- Note as a finished range what a :consumer has read by itself, :age seconds long: all before the offset :start.
-- Nothing is noted while ranges are in progress, which are counted. Indexes: the primary key, {table}__lease.
-- Locks: range_wait comes before it, so that it sees the last claim.
with last as (
    select last_offset from {ranges} order by id desc limit 1
), open as (
    select count(*) as ranges from {ranges} where lease_until is not null
), noted as (
    insert into {ranges} (first_offset, last_offset, messages, ids_sum, consumer, popped_at, finished_at)
    select
        last_offset + 1, :start - 1, :start - 1 - last_offset, 0, cast(:consumer as text),
        {now} - cast(:age as float8) * interval '1 second', {now}
    from last
    cross join open
    where last_offset + 1 < :start and open.ranges = 0
)
select ranges from open;
