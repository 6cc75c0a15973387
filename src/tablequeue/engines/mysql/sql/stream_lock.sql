-- What is known of the stream :stream, held until the transaction ends: one run acts at a time.
-- Index: the primary key. Locks: the row.
select epoch, batch, completed, token, failures
from {streams}
where stream = :stream
for update;
