-- Give a queue {concurrency} places, which had another number. Messages in progress are counted by each claim.
-- Locks: the database. Runs in one transaction: a crash leaves the number as it was.
update {slots} set places = {concurrency};
