-- Wake those who wait at the queue, when this transaction commits; nothing if nobody does. After a COPY.
select {rung};
