-- The tokens of all packs of messages apart. A forced seek unpacks them, so that it finds their messages in the queue.
-- Index: the primary key. Locks: the rows; locked rows are skipped.
select token from {packs} for update skip locked;
