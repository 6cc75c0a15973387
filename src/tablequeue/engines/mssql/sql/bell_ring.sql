-- Ring, after a push and in its transaction. A bell that has not been heard yet is held until that transaction ends,
-- and rings for this push too; where there is none, or others hold all there are, this push has one of its own. So
-- nobody hears it before the commit, there are never more bells than pushes under way, and no push waits for another
-- one.
-- Whether there is a bell must not be asked without holding it: a waiter could hear it before the commit, and nobody
-- would ring for this push.
-- GET CONVERSATION GROUP passes over what is locked, and holds what it finds. It needs the right to RECEIVE from the
-- bell, and SEND that to its service. Locks: the conversation, until the commit.
declare @held uniqueidentifier;
get conversation group @held from {queue}__bell;
if @held is null
begin
    declare @handle uniqueidentifier;
    begin dialog conversation @handle
        from service [{queue}__bell] to service N'{queue}__bell', N'CURRENT DATABASE'
        on contract [DEFAULT]
        with encryption = off;
    send on conversation @handle message type [DEFAULT];
end;
