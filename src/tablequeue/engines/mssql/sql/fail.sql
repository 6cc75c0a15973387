-- Fail the attempts on the messages of :delays, a JSON array of pairs of an id and seconds, that are held under :token:
-- each is ready again after its delay, or a dead letter if this was its last attempt. The error is kept.
-- Index: the primary key, sought as in complete_keep. Locks: the rows.
-- A crash leaves them in progress until their leases expire.
declare @delays nvarchar(max) = cast(:delays as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @max_attempts int = :max_attempts;
declare @error nvarchar(max) = cast(:error as nvarchar(max));
declare @now datetime2(6) = {now};
update message
set state = case
        when attempts >= @max_attempts{in_time} then 'dead'{or_blocked}
        when given.delay > 0 then 'scheduled'
        else 'ready'
    end,
    due_at = case when attempts >= @max_attempts{in_time} then due_at else {now_and_given_delay} end,
    errors = {errors_and_one},
    token = null,
    lease_until = null{out_of_run}
{note_inserted}output inserted.id, inserted.state
from openjson(@delays) with (id bigint '$[0]', delay float '$[1]') as given
inner join {queue} as message with (rowlock, forceseek) on message.id = given.id
where message.token = @token and message.cancelled_at is null;
