-- {queue}__grant_rate: return how many messages the rate allows now, and the time of that now. For pop and take.
-- It waits for other claims. Locks: the row of the rate, until the transaction ends.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__grant_rate
    @p_now datetime2(6),
    @p_clock datetime2(6) output
as
begin
    set xact_abort, nocount on;
    declare @granted table (tokens bigint not null, clock varchar(33) not null);
    {sql grant_rate into=@granted};
    declare @tokens bigint;
    select @tokens = tokens, @p_clock = convert(datetime2(6), clock, 126) from @granted;
    return case when @tokens < 0 then 0 else @tokens end;
end;
go
