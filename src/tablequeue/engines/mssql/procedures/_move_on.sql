-- {queue}__move_on: the turns that complete and fail have left free are given, in a transaction of its own: what they
-- did took effect, and must not be repeated because a turn cannot be given. A pop that finds too little gives it.
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
