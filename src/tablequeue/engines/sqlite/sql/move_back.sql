-- Move those of :ids that wait in {target}, and came from this queue, back: with a new id, all attempts before them and
-- the keys that they had. The first statement finds and locks them, the others move them.
-- Index: the primary key. Locks: the database. A crash leaves all moved, or none.
select id from {target}
where id in (select value from json_each(:ids)) and state in ('ready', 'scheduled', 'blocked', 'dead');
insert into {queue} (
    {queue_row without id token lease_until}
)
select
    {queue_row without id token lease_until with
        state = '{pushed_ready}'
        attempts = 0
        due_at = {redriven_due}
        dedup_key = {origin_key}}
from {target}
where id in (select value from json_each(:ids))
order by id;
delete from {target}
where id in (select value from json_each(:ids));
