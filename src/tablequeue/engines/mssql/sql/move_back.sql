-- Move those of :ids that wait in {target}, and came from this queue, back: with a new id, all attempts before them and
-- the keys that they had. The first statement finds and locks them, the others move them. One of them may be the head
-- of its group in {target}: then the group needs another one, so it is noted.
-- Index: the primary key, sought as in complete_keep. Locks: the rows, of at most 1,000 messages; locked rows are
-- skipped. A crash leaves all moved, or none.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
select message.id
from {target} as message with (rowlock, readpast, updlock, readcommittedlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.state in ('ready', 'scheduled', 'blocked', 'dead');
go
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
insert into {queue} (
    {queue_row without id token lease_until}
)
{note_inserted}select
    {queue_row without id token lease_until with
        state = '{pushed_ready}'
        attempts = 0
        due_at = {redriven_due}
        dedup_key = {origin_key}}
from {target} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
order by id;
go
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
delete from message
{note_from_target}from {target} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given);
