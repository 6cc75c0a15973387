-- {queue}_read_history: the last @p_n finished messages with ids from @p_low to @p_high, highest id first; for
-- observers. Not {queue}_history, which is the table.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_read_history
    @p_n bigint = 10,
    @p_low bigint = 0,
    @p_high bigint = 9223372036854775807
as
begin
    -- Filtered indexes need these settings, which are the caller's; the other two are stored with the procedure.
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    {sql history};
end;
go
