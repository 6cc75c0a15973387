-- How many ranges and messages apart a seek to :start has left where none may be: other transactions have locked them,
-- or they are in progress.
-- Indexes: {table}__lease, the primary keys; all messages apart are read. Locks: none.
select
    (select count(*) from {ranges} where lease_until is not null and last_offset >= :start)
    + (
        select count(*) from {queue}
        where first_popped_at is null or (id >= :start and id in (select id from {log}))
    );
