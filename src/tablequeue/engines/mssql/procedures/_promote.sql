-- {queue}__promote: make the lowest blocked message the head, in up to @p_n groups without one. Returns the number of
-- groups. For the other procedures.
-- It runs in the transaction of their caller, which keeps the new heads locked until it commits: keep transactions
-- around pop and take short. If two transactions promote in the same group at once, one may fail with error 2601. Try
-- it again, as after a deadlock.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__promote
    @p_n bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql promote n=@p_n into=nothing};
    declare @promoted int = (select count(*) from @head);
    return @promoted;
end;
go
