-- Those of :ids that are dead letters become ready, with no attempts made. Their errors stay.
-- Index: the primary key, and not that of the dead letters beside it (state || '': see promote). Locks: the rows.
-- A crash leaves all or nothing.
with redriven as (
    update {queue}
    set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry}
    where id = any(cast(:ids as bigint[])) and state || '' = 'dead'
    returning id
)
select id, {waited_for} as waited_for from redriven;
