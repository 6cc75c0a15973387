-- Up to :n messages that are due become ready; then as many whose lease has expired, or dead letters if their last
-- attempt is spent. A lost lease is an error of the attempt. One that was told to stop stays as it is, in progress:
-- cancel_held ends it.
-- Indexes: {table}__scheduled, {table}__in_progress, forced as in claim. Locks: the rows; locked rows are skipped. Each
-- of the two leaves all or nothing in a crash.
declare @n bigint = :n;
declare @now datetime2(6) = {now};
with due as (
    select top (@n) id, state
    from {queue} with (index ({table}__scheduled), rowlock, readpast, updlock, readcommittedlock)
    where state = 'scheduled' and due_at <= @now
    order by due_at
)
update due
set state = 'ready'
output inserted.id, inserted.state;
go
declare @n bigint = :n;
declare @max_attempts int = :max_attempts;
declare @now datetime2(6) = {now};
declare @error nvarchar(max) = N'lease expired';
with expired as (
    select top (@n)
        id, state, attempts, cancelled_at, token, lease_until, group_key, consumer, errors{expires_at}{and_in_run}
    from {queue} with (index ({table}__in_progress), rowlock, readpast, updlock, readcommittedlock)
    where state = 'in_progress' and lease_until <= @now
    order by lease_until
)
update expired
set state = case
        when cancelled_at is not null then state
        when attempts >= @max_attempts{in_time} then 'dead'{or_blocked}
        else 'ready'
    end,
    errors = case when cancelled_at is not null then errors else {errors_and_one} end,
    token = case when cancelled_at is not null then token end,
    lease_until = case when cancelled_at is not null then lease_until end{out_of_run_if_swept}
{note_inserted}output inserted.id, inserted.state;
