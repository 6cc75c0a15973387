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
