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
    -- [not dead_letter_to]
    return @@rowcount;
    -- [end]
    -- [dead_letter_to]
    declare @moved int = @@rowcount;
    exec {queue}__move_dead @p_now;
    commit transaction;
    return @moved;
    -- [end]
end;
go
