-- Notifications of consumers that wait.

-- name: send_notification
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

-- name: wait_for_notification
-- Wait up to :timeout milliseconds for a notification; 1 if it came. Then pop until nothing is ready, and wait again: a
-- push in between sends another one. The end of a dialog counts as a notification, too, for the next consumer that
-- waits: it looks once in vain.
-- Not in a transaction of yours: it would hold the notification until it ends. Locks: the conversation.
-- In one transaction: a crash before its commit leaves the notification. A consumer that dies after it, before it pops,
-- wakes no other one: so a consumer that waits looks after each time-out, too.
-- XACT_ABORT: a session that is cut off while it waits leaves no transaction open.
declare @timeout int = :timeout;
declare @handle uniqueidentifier;
set xact_abort on;
begin transaction;
waitfor (receive top (1) @handle = conversation_handle from {queue}__notify), timeout @timeout;
if @handle is not null
    end conversation @handle;
commit transaction;
select case when @handle is null then 0 else 1 end as notified;
