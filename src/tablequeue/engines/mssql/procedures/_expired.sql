-- {queue}__expired: make up to @p_n abandoned messages ready, or dead letters. Returns their number. For
-- {queue}__sweep.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__expired
    @p_n bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    -- [dead_letter_to]
    begin transaction;
    -- [end]
    {sql sweep/2 n=@p_n max_attempts=max_attempts into=nothing};
    declare @moved int = @@rowcount;
    -- [at_least_once]
    declare @told nvarchar(max) = N'[' + stuff((
        select concat(N',', id)
        from {queue} with (index ({table}__in_progress), rowlock, readpast, readcommittedlock)
        where state = 'in_progress' and lease_until <= @now and cancelled_at is not null
        for xml path (N'')
    ), 1, 1, N'') + N']';
    exec {queue}__cancel_held @told, null, N'lease expired', @p_now;
    -- [end]
    -- [dead_letter_to]
    exec {queue}__move_dead @p_now;
    commit transaction;
    -- [end]
    return @moved;
end;
go
