-- Fail the attempt on message :id, held under :token: the message is ready again after :delay seconds, or a dead letter
-- if this was its last attempt. The error is kept.
-- Index: the primary key. Locks: the row. A crash leaves the message in progress until its lease expires.
declare @id bigint = :id;
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @delay float = cast(:delay as float);
declare @max_attempts int = :max_attempts;
declare @error nvarchar(max) = cast(:error as nvarchar(max));
declare @now datetime2(6) = {now};
declare @due datetime2(6) = {now_and_delay};
update {queue} with (rowlock)
set state = case
        when attempts >= @max_attempts{in_time} then 'dead'
        when @delay > 0 then 'scheduled'
        else 'ready'
    end,
    due_at = case when attempts < @max_attempts then @due else due_at end,
    errors = {errors_and_one},
    token = null,
    lease_until = null
{note_inserted}output inserted.state
where id = @id and token = @token;
