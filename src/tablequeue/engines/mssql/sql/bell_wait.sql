-- Wait up to :timeout milliseconds for the bell; 1 if it rang. Then pop until nothing is ready, and wait again: what is
-- pushed meanwhile rings again. The end of a dialog is heard too, by whoever waits next: a look too many.
-- Locks: the conversation. A crash leaves the bell as it was.
declare @timeout int = :timeout;
declare @handle uniqueidentifier;
waitfor (receive top (1) @handle = conversation_handle from {queue}__bell), timeout @timeout;
if @handle is not null
    end conversation @handle;
select case when @handle is null then 0 else 1 end as rung;
