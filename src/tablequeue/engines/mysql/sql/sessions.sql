-- Sessions: the database of the queues.

-- name: place
-- The database of the queues, if none is named: that of the session which comes first. Afterwards each statement names
-- it.
select database();
