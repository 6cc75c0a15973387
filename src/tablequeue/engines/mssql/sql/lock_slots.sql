-- Find the places whose message is no longer in progress, and lock up to :n of them. The second statement compares the
-- notes: a place whose note has changed since the first one may have been filled.
-- The first statement may not skip a message that another transaction has locked: it is still in progress. Without
-- READ_COMMITTED_SNAPSHOT it waits until that one ends.
-- Index: the primary keys. Locks: the places, until the transaction ends; locked ones are skipped.
declare @n bigint = :n;
-- Of the closed places, those whose message is in progress: as many free ones, the first, are passed over.
declare @closed bigint = (
    select count(*)
    from {slots} as closed with (rowlock, readcommittedlock)
    where closed.slot < 0 and exists (
        select 1 from {queue} as message with (forceseek)
        where message.id = closed.message and message.token = closed.token and message.state = 'in_progress'
    )
);
declare @free table (slot bigint not null primary key, message bigint not null, token uniqueidentifier not null);
insert into @free (slot, message, token)
select place.slot, place.message, place.token
from {slots} as place with (rowlock, readpast, readcommittedlock)
where place.slot > 0 and not exists (
    select 1 from {queue} as message with (forceseek)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
);
delete from @free where slot in (select top (@closed) slot from @free order by slot);
select top (@n) place.slot
from @free as free
inner loop join {slots} as place with (rowlock, readpast, updlock, readcommittedlock)
    on place.slot = free.slot and place.message = free.message and place.token = free.token
option (force order);
