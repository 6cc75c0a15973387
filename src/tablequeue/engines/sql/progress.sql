-- Progress of messages: what the consumers of messages in progress report of their work.

-- name: drop_progress
-- Drop the table of reported progress, if there is one.
-- In one transaction with the queue: a crash leaves all or nothing. On MariaDB and MySQL it commits by itself, and the
-- next drop of this name drops what a crash leaves.
drop table if exists {progress};
