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
    {sql sweep/2 n=@p_n max_attempts=max_attempts into=nothing};
    return @@rowcount;
end;
go
