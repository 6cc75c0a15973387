-- Exact counts by state, each a range of {table}__state, and the age in seconds of the first ready message.
-- Locks: none.
select
    (select count(*) from {queue} where state = 'ready'),
    (select count(*) from {queue} where state = 'scheduled'),
    (select count(*) from {queue} where state = 'in_progress'),
    (select count(*) from {queue} where state = 'dead'),
    (select count(*) from {queue} where state = 'blocked'),
    (
        select timestampdiff(microsecond, pushed_at, {now}) / 1e6
        from {queue} force index ({table}__state) where state = 'ready' and sweep_at is null order by id limit 1
    );
