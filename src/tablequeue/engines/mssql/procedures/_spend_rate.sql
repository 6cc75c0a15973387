-- {queue}__spend_rate: spend the rate of @p_number messages, which the transaction has claimed. For pop and take.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__spend_rate
    @p_number bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql spend_rate};
end;
go
