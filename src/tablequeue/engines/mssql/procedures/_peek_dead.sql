-- {queue}__peek_dead: the messages of {queue}_peek that are dead.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__peek_dead
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    {sql peek state=dead};
end;
go
