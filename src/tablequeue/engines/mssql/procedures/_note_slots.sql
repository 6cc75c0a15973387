-- {queue}__note_slots: note in the places of @p_slots the messages of @p_ids, claimed under @p_token. For pop.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__note_slots
    @p_slots nvarchar(max),
    @p_ids nvarchar(max),
    @p_token uniqueidentifier
as
begin
    set xact_abort, nocount on;
    declare @p_places nvarchar(max) = (
        select json_value(place.value, '$.slot') as slot, json_value(message.value, '$.id') as message
        from openjson(@p_slots) as place
        join openjson(@p_ids) as message on message.[key] = place.[key]
        for json path
    );
    {sql note_slots};
end;
go
