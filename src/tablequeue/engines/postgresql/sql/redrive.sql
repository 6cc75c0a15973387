-- Up to :n dead letters with an id above :after become ready, with no attempts made. Their errors stay.
-- Index: {table}__dead. Locks: the rows. A crash leaves all of a batch done, or nothing.
with redriven as (
    update {queue}
    set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry}
    where id = any(array(
        select id from {queue} where state = 'dead' and id > :after order by id limit :n for update skip locked
    ))
    returning id
)
select id, {waited_for} as waited_for from redriven;
