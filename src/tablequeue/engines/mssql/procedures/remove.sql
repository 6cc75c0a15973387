-- {queue}_remove: the rows of take, in any order, without a sweep.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_remove
    @p_n bigint,
    @p_token uniqueidentifier,
    @p_consumer nvarchar(512),
    @p_lease float,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    -- [keep]
    {sql take_keep}
    -- [end]
    -- [none]
    {sql take_none}
    -- [end]
end;
go
