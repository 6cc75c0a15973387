-- How many ranges and messages apart a seek to :start has left where none may be: other transactions have locked them,
-- or they are in progress.
-- Indexes: {table}__lease, the primary keys, that of the runs by last_id; all messages apart are read. Locks: none.
select
    (select count(*) from {ranges} where lease_until is not null and last_offset >= :start)
    + (
        select count(*)
        from (select id, first_popped_at from {queue} union all select id, popped_at from {packed}) as message
        where first_popped_at is null or exists (
            select 1
            from (select first_offset, first_id from {runs} where last_id >= message.id order by last_id limit 1) as run
            where first_id <= message.id and first_offset + message.id - first_id >= :start
                and first_offset > (select min(first_offset) from {runs})
        )
    );
