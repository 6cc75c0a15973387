-- {queue}_look_up: which of the JSON array @p_keys messages have. For push.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_look_up
    @p_keys nvarchar(max)
as
begin
    set xact_abort, nocount on;
    {sql find_keys}
end;
go
