-- {queue}__due: make up to @p_n messages ready that are due. Returns their number. For {queue}__sweep.
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
