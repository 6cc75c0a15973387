-- {queue}_due: what is due becomes ready. For {queue}_sweep.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_due
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql sweep/1 n=1000}
end;
go
