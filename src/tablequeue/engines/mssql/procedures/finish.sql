-- {queue}_finish: what complete finishes, and the groups of that if there are some.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_finish
    @p_ids nvarchar(max),
    @p_token uniqueidentifier,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    -- [at_most_once]
    {sql complete_once}
    -- [end]
    -- [keep at_least_once]
    {sql complete_keep}
    -- [end]
    -- [none]
    {sql complete_none}
    -- [end]
end;
go
