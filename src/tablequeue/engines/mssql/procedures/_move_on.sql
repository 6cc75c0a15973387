-- {queue}__move_on: promote after complete or fail, in a transaction of its own. They have taken effect, and the caller
-- must not repeat them because promote fails. A later pop that finds too few messages promotes.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__move_on
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    begin try
        begin transaction;
        exec {queue}__promote 1000, @p_now;
        commit transaction;
    end try
    begin catch
        if xact_state() <> 0 rollback transaction;
    end catch;
end;
go
