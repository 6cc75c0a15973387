-- Give a queue {concurrency} places, which had another number. Messages in progress keep theirs: a place that is one
-- too many is closed until its message is finished.
-- Locks: all places, until the transaction ends; it waits for the claims that have locked some.
-- Runs in one transaction: a crash leaves the places as they were.
declare @last bigint = {concurrency};
update {slots} with (rowlock, readcommittedlock) set message = message;
delete place
from {slots} as place
where (place.slot < 0 or place.slot > @last) and not exists (
    select 1 from {queue} as message with (forceseek)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
);
update {slots} set slot = -message where slot > @last;
insert into {slots} (slot)
select number.slot
from (
    select top ({concurrency}) row_number() over (order by (select null)) as slot
    from sys.all_columns as one cross join sys.all_columns as other
) as number
where not exists (select 1 from {slots} as place where place.slot = number.slot);
