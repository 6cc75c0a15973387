-- Up to :n dead letters with an id above :after become ready, with no attempts made. Their errors stay.
-- Index: {table}__dead. Locks: the rows. A crash leaves all of a batch done, or nothing.
declare @n bigint = :n;
declare @after bigint = :after;
with letters as (
    select top (@n) id, state, attempts, due_at, group_key{expires_at}
    from {queue} with (index ({table}__dead), rowlock, readpast, updlock, readcommittedlock)
    where state = 'dead' and id > @after
    order by id
)
update letters
set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry}
{note_inserted}output inserted.id;
