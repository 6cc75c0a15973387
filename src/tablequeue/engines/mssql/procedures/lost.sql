-- {queue}_lost: the first @p_n messages that were claimed at most once, @p_age seconds ago (else {lease}) or longer,
-- and not acknowledged; for observers.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_lost
    @p_n bigint = 10,
    @p_age float = {lease},
    @p_now datetime2(6) = null
as
begin
    -- Filtered indexes need these settings, which are the caller's; the other two are stored with the procedure.
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    {sql lost};
end;
go
