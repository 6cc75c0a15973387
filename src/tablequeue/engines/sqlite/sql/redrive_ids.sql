-- Those of :ids that are dead letters become ready, with no attempts made. Their errors stay.
-- Index: the primary key. A crash leaves all or nothing.
update {queue}
set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry}
where id in (select value from json_each(:ids)) and state = 'dead'
returning id;
