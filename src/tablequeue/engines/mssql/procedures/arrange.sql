-- {queue}_arrange: in groups whose turn came free, the next message becomes ready. For the other procedures.
-- It runs in the transaction of their caller, who holds the new fronts of the groups, whichever they are, until it
-- commits: keep transactions around them short. Of two that arrange the same group at once, one fails with error 2601
-- and is to be tried again, as after a deadlock.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_arrange
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql arrange n=1000}
end;
go
