-- {queue}__peek_scheduled: the messages of {queue}_peek that are scheduled.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__peek_scheduled
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    {sql peek state=scheduled};
end;
go
