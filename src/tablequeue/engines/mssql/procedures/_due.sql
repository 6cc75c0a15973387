-- {queue}__due: up to @p_n messages that are due become ready; returns how many. For {queue}__sweep.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__due
    @p_n bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql sweep/1 n=@p_n into=nothing};
    return @@rowcount;
end;
go
