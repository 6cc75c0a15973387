-- Parts of reads.

-- name: of_many
-- One of several queues that are read in one statement, which is a union of such reads: the place of the queue among
-- them, and the rows of its own read. Indexes and locks: those of that read.
select {place} as place, found.* from (
{read}
) as found
