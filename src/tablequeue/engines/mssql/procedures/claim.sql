-- {queue}_claim: the rows of pop, in any order, without a sweep.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_claim
    @p_n bigint,
    @p_token uniqueidentifier,
    @p_consumer nvarchar(512),
    @p_lease float,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    -- [at_least_once]
    {sql claim}
    -- [end]
    -- [at_most_once]
    {sql take_keep}
    -- [end]
end;
go
