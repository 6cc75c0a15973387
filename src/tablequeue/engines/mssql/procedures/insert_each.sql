-- {queue}_insert_each: the push of {queue}_push_each, without its checks.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_insert_each
    @p_rows nvarchar(max),
    @p_producer nvarchar(512),
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql push_each}
end;
go
