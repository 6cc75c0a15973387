-- {queue}_give_back: what release gives back.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_give_back
    @p_ids nvarchar(max),
    @p_token uniqueidentifier,
    @p_delay float,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql release}
end;
go
