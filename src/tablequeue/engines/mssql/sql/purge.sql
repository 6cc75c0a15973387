-- Delete up to :n messages that are {state}.
-- Index: {table}__{state}, in its own order: all of them go in the end. Bounded, and locked rows are skipped, so that
-- no consumer waits. What was deleted before a crash stays deleted.
declare @n bigint = :n;
with gone as (
    select top (@n) id, group_key
    from {queue} with (index ({table}__{state}), rowlock, readpast, updlock, readcommittedlock)
    where {in_state}
)
delete from gone
{note_deleted}output deleted.id;
