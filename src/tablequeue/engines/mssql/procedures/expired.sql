-- {queue}_expired: what was abandoned becomes ready, or a dead letter. For {queue}_sweep.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_expired
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql sweep/2 n=1000 max_attempts=max_attempts}
end;
go
