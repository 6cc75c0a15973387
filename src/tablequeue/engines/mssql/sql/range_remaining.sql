-- How many ranges and messages apart a seek to :start has left where none may be: other transactions have locked them,
-- or they are in progress.
-- Indexes: {table}__lease, the primary keys, that of the runs by last_id; all messages apart are read.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
declare @start bigint = :start;
select
    (select count_big(*) from {ranges} where lease_until is not null and last_offset >= @start)
    + (
        select count_big(*)
        from {queue} as message
        where message.first_popped_at is null or exists (
            select 1
            from (select top (1) first_offset, first_id from {runs} where last_id >= message.id order by last_id) as run
            where run.first_id <= message.id and run.first_offset + message.id - run.first_id >= @start
                and run.first_offset > (select min(every.first_offset) from {runs} as every)
        )
    ) as remaining;
