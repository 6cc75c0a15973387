-- {queue}__spend_group_rates: spend the rates of the groups of a JSON array, each with the number of its messages that
-- the transaction has claimed. For pop and take.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__spend_group_rates
    @p_by_group nvarchar(max),
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql spend_group_rates};
end;
go
