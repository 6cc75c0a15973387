-- Read the row of the stream :stream, and lock it until the transaction ends: one run acts at a time.
-- Index: the primary key. Locks: the row.
select epoch, batch, completed, token, failures
from {streams}
where stream = :stream
for update;
