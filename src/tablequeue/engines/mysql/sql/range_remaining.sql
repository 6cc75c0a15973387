-- How many ranges and messages apart a seek to :start has left where none may be: other transactions have locked them,
-- or they are in progress.
-- Indexes: {table}__lease, the primary keys, that of the runs by last_id; all messages apart are read. Locks: none.
select count(*) from {ranges} force index ({table}__lease) where lease_until is not null and last_offset >= :start;
select count(*)
from {queue} as message force index (primary)
where first_popped_at is null or exists (
        select 1
        from {runs} as run
        where run.last_id = (select min(last_id) from {runs} where last_id >= message.id)
            and first_id <= message.id and first_offset + message.id - first_id >= :start
            and first_offset > (select min(first_offset) from {runs})
    );
