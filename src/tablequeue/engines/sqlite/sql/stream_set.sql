-- Set the stream :stream, whose row is locked, to :batch. :claim is the token of that batch, or null if it is
-- completed.
-- Index: the primary key. A crash before the commit leaves it where it was, and its messages too.
update {streams}
set batch = :batch,
    completed = :completed,
    token = :claim,
    claimed_at = case when :claim is null then null else {now} end,
    failures = :failures
where stream = :stream;
