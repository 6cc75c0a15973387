-- Up to :n dead letters with an id above :after become ready, with all their attempts before them; their errors stay.
-- Index: {table}__dead. A crash leaves all or nothing of a batch.
update {queue}
set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}
where id in (select id from {queue} where state = 'dead' and id > :after order by id limit :n)
returning id;
