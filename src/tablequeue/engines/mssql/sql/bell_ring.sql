-- Ring, after a push and in its transaction; nothing if the bell has not been heard since the last time, so that many
-- pushes ring once. Nobody hears it before the commit. Locks: none that another push waits for.
if not exists (select 1 from {queue}__bell)
begin
    declare @handle uniqueidentifier;
    begin dialog conversation @handle
        from service [{queue}__bell] to service N'{queue}__bell', N'CURRENT DATABASE'
        on contract [DEFAULT]
        with encryption = off;
    send on conversation @handle message type [DEFAULT];
end;
