-- {queue}__cancel_held: the messages of the JSON array @p_ids that are held under @p_token, and were told to stop, end.
-- If @p_token is null, those whose lease has expired. Returns their number. For {queue}_fail, {queue}_release and
-- {queue}__expired.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__cancel_held
    @p_ids nvarchar(max),
    @p_token uniqueidentifier,
    @p_error nvarchar(max),
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql cancel_held into=nothing};
    return (select count(*) from @message);
end;
go
