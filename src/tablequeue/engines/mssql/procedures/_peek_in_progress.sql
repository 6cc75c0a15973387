-- {queue}__peek_in_progress: the messages of {queue}_peek that are in_progress.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__peek_in_progress
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    {sql peek state=in_progress};
end;
go
