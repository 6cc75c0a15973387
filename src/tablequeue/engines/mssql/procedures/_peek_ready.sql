-- {queue}__peek_ready: the messages of {queue}_peek that are ready.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__peek_ready
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    {sql peek state=ready};
end;
go
