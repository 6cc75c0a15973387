-- Wait up to :timeout milliseconds for the bell; 1 if it rang. Then pop until nothing is ready, and wait again: what
-- is pushed meanwhile rings again. The end of a dialog is heard too, by whoever waits next: a look too many.
-- Not in a transaction of yours: the bell would be yours until that ends. Locks: the conversation.
-- In one transaction: a crash before its commit leaves the bell as it was. A consumer that has heard it and dies before
-- it pops wakes nobody else: a consumer that waits looks after each time-out too.
-- XACT_ABORT: a client that is cut off in the wait leaves no transaction open.
declare @timeout int = :timeout;
declare @handle uniqueidentifier;
set xact_abort on;
begin transaction;
waitfor (receive top (1) @handle = conversation_handle from {queue}__bell), timeout @timeout;
if @handle is not null
    end conversation @handle;
commit transaction;
select case when @handle is null then 0 else 1 end as rung;
