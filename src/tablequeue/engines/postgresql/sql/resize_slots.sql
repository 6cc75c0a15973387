-- Give a queue {concurrency} places, which had another number. Messages in progress keep theirs: a place that is one
-- too many is closed until its message is finished.
-- Locks: all places, until the transaction ends; it waits for the claims that have locked some.
-- Runs in one transaction: a crash leaves the places as they were.
select slot from {slots} for update;
delete from {slots} as place
where (slot < 0 or slot > {concurrency}) and (
    select true from {queue} where id = place.message and token = place.token and state = 'in_progress'
) is null;
update {slots} set slot = -message where slot > {concurrency};
insert into {slots} (slot)
select n from generate_series(1, {concurrency}) as n
where not exists (select from {slots} where slot = n);
analyze {slots};
