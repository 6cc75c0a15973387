-- {queue}_fail: fail the attempt on message @p_id, held under @p_token, for consumers. Returns its new state.
-- It is tried again after @p_retry_in seconds, or else by the backoff; after {max_attempts} attempts it is dead.
-- One that was told to stop is cancelled. At most once it stays lost. Error 51003 if the lease is lost.
-- Locks: the message, until the transaction ends.
-- A crash before the commit leaves the message in progress.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_fail
    @p_id bigint,
    @p_token uniqueidentifier,
    @p_error nvarchar(max) = N'',
    @p_retry_in float = null,
    @p_now datetime2(6) = null
as
begin
    -- Filtered indexes need these settings, which are the caller's; the other two are stored with the procedure.
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    declare @state varchar(11) = 'lost';
    begin try
        begin transaction;
        declare @p_delay float = @p_retry_in;
        if @p_delay not between 0 and {longest}
            throw 51001, N'retry_in is not from 0 to 100 years. Give another one.', 1;
        set @p_error = coalesce(@p_error, N'');
        -- This collation counts a character of two code units as one, and does not cut it in two.
        if len((@p_error + N'.') collate Latin1_General_100_CI_AS_SC) - 1 > {longest_error}
            set @p_error = concat(
                left(@p_error collate Latin1_General_100_CI_AS_SC, {error_ends}), nchar(10), N'[... ',
                len((@p_error + N'.') collate Latin1_General_100_CI_AS_SC) - 1 - 2 * {error_ends},
                N' characters left out ...]', nchar(10),
                right(@p_error collate Latin1_General_100_CI_AS_SC, {error_ends})
            );
        -- [at_least_once]
        if @p_delay is null
            select @p_delay = (
                select min(wait.seconds)
                from (values
                    (cast({cap} as float)),
                    (
                        cast({base} as float) * power(
                            cast({factor} as float), case when attempts > {steps} then {steps} else attempts - 1 end
                        )
                    )
                ) as wait (seconds)
            ) * (1 - cast({jitter} as float) * rand())
            from {queue} where id = @p_id and token = @p_token;
        declare @p_delays nvarchar(max) =
            concat(N'[[', @p_id, N',', coalesce(convert(nvarchar(40), @p_delay, 2), N'null'), N']]');
        {sql fail delays=@p_delays max_attempts=max_attempts into=nothing};
        declare @changed bigint = @@rowcount;
        if @changed > 0
            select @state = state from {queue} where id = @p_id;
        else
        begin
            declare @it nvarchar(max) = concat(N'[', @p_id, N']');
            exec @changed = {queue}__cancel_held @it, @p_token, @p_error, @p_now;
            set @state = 'cancelled';
        end;
        -- [end]
        -- [at_most_once]
        {sql fail_at_most_once ids=concat(N'[',@p_id,N']') into=nothing};
        declare @changed bigint = @@rowcount;
        -- [end]
        if @changed = 0
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        -- [dead_letter_to]
        if @state = 'dead' exec {queue}__move_dead @p_now;
        -- [end]
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
    -- [grouped]
    if @alone = 1 and @state in ('dead', 'cancelled', 'blocked') exec {queue}__move_on @p_now;
    -- [end]
    select @state as state;
end;
go
