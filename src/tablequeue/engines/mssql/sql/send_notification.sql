-- Notify the consumers that wait: after a push, in its transaction. If there is a notification that no consumer has
-- received yet, this holds it until the transaction ends, and it stands for this push too. If there is none, or if
-- other pushes hold all of them, this push sends one of its own. So no consumer receives it before the commit, there
-- are never more notifications than pushes under way, and no push waits for another one.
-- A push must not ask for a notification without holding it: a consumer could receive it before the commit, and nothing
-- would announce this push.
-- GET CONVERSATION GROUP skips what is locked, and locks what it finds. It needs the right to RECEIVE from the Service
-- Broker queue, and SEND the right to its service. Locks: the conversation, until the commit.
declare @held uniqueidentifier;
get conversation group @held from {queue}__notify;
if @held is null
begin
    declare @handle uniqueidentifier;
    begin dialog conversation @handle
        from service [{queue}__notify] to service N'{queue}__notify', N'CURRENT DATABASE'
        on contract [DEFAULT]
        with encryption = off;
    send on conversation @handle message type [DEFAULT];
end;
