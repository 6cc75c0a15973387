-- Give a queue {concurrency} places, which had another number. Messages in progress keep theirs: a place that is one
-- too many is closed until its message is finished.
-- Locks: all places, until the transaction ends; it waits for the claims that have locked some.
-- Runs in one transaction: a crash leaves the places as they were.
select slot from {slots} for update;
delete place from {slots} as place
where (place.slot < 0 or place.slot > {concurrency}) and not exists (
    select 1 from {queue} as message force index (primary)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
);
update {slots} set slot = -message where slot > {concurrency};
insert ignore into {slots} (slot)
with digit (n) as (
    select 0 union all select 1 union all select 2 union all select 3 union all select 4
    union all select 5 union all select 6 union all select 7 union all select 8 union all select 9
), place (slot) as (
    select one.n + 10 * ten.n + 100 * hundred.n + 1000 * thousand.n + 1
    from digit as one, digit as ten, digit as hundred, digit as thousand
)
select slot from place where slot <= {concurrency};
