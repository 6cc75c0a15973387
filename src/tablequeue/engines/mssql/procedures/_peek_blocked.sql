-- {queue}__peek_blocked: the messages of {queue}_peek that are blocked.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__peek_blocked
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    {sql peek state=blocked};
end;
go
