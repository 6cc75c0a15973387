-- {queue}__insert_each: the push of {queue}_push_each, without its checks. @p_pushed is a JSON array of objects: the
-- place of a row in @p_rows, from 0 on, and its id. A row whose key is taken has no id.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__insert_each
    @p_rows nvarchar(max),
    @p_producer nvarchar(max),
    @p_now datetime2(6),
    @p_pushed nvarchar(max) output
as
begin
    set xact_abort, nocount on;
    declare @answers table (id bigint null, place int not null);
    {sql push_each into=@answers};
    set @p_pushed = coalesce((select place, id from @answers for json path), N'[]');
end;
go
