-- Exact counts by state, each from its partial index, and the age in seconds of the first ready message.
-- Locks: none.
select
    (select count(*) from {queue} where state = 'ready'),
    (select count(*) from {queue} where state = 'scheduled'),
    (select count(*) from {queue} where state = 'in_progress') + (select coalesce(sum(size), 0) from {packs}),
    (select count(*) from {queue} where state = 'dead'),
    (select count(*) from {queue} where state = 'blocked'),
    (
        select cast(extract(epoch from {now} - pushed_at) as float8)
        from {queue} where state = 'ready' order by id limit 1
    );
