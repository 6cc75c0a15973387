-- Mark the ids of a piece of a write as used: topic_stage_copy follows, in the same transaction. No row: the write is
-- over, and others have deleted the piece.
-- Index: the primary key. Locks: the rows, so that nobody deletes the piece meanwhile (topic_unstage). The commit need
-- not be on the disk: see create_topic_functions. A crash leaves the piece for the next write, or for a day.
update {parts} set copied = true
where first_id = any(:ids) and write_id = :write and attempt = :attempt
returning first_id, set_config('synchronous_commit', 'off', true);
