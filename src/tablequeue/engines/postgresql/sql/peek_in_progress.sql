-- As peek, of the messages in progress: those of the table, and those in packs. Locks: none.
-- Index: {table}__in_progress.
select *
from (
    select
        {live_columns}
    from {queue}
    where state = 'in_progress'
    union all
    select
        {live_columns}
    from {packed}
    where last_id > :after
) as message
where id > :after
order by id
limit :n;
