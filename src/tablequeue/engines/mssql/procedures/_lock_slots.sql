-- {queue}__lock_slots: lock up to @p_n free places. Returns how many, and the places as a JSON array. For pop.
-- Locks: the places, until the transaction ends; locked ones are skipped.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__lock_slots
    @p_n bigint,
    @p_slots nvarchar(max) output
as
begin
    set xact_abort, nocount on;
    declare @slots table (slot bigint not null);
    {sql lock_slots into=@slots};
    set @p_slots = (select slot from @slots for json path);
    return (select count(*) from @slots);
end;
go
