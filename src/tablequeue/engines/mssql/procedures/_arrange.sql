-- {queue}__arrange: in up to @p_n groups whose turn came free, the next message becomes ready; returns in how many. For
-- the other procedures. It runs in the transaction of their caller, who holds the new fronts of the groups, whichever
-- they are, until it commits: keep transactions around pop and take short. Of two that arrange the same group at once,
-- one may fail with error 2601, and is to be tried again, as after a deadlock.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__arrange
    @p_n bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql arrange n=@p_n into=nothing};
    return @@rowcount;
end;
go
