-- {queue}__outdated: delete from the history what is older than its retention. For {queue}__sweep.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__outdated
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql purge_history n=1000 age=retention into=nothing};
end;
go
