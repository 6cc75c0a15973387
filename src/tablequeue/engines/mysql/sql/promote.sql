-- In up to :n groups that the triggers have noted, the lowest blocked message becomes the head, if there is none, and
-- if it is not behind a message of an open run (see create_groups).
-- The statements: find notes; lock those that are not locked; find the lowest message of each of their groups that has
-- no head; make it the head, and then retract, in the same transaction; delete the notes.
-- The limit of the third one keeps MariaDB from merging the inner query into the outer one. Merged, it fails in a
-- procedure from the second call on: "unknown column noted.group_key".
-- IGNORE: if two transactions promote in the same group at once, the unique index refuses one head, which is skipped.
-- It hides no other error, because nothing else can fail here.
-- Indexes: {table}__front, {table}__blocked. Locks: the notes (locked ones are skipped), the new heads.
-- A crash leaves all or nothing: groups that were not promoted are still noted.
select id from {turns} order by id limit :n;
select turn.id
from {given} straight_join {turns} as turn force index (primary) on turn.id = given.id
for update skip locked;
select next.id
from (
    select noted.group_key, (
        select message.id from {queue} as message
        where message.group_key = noted.group_key and message.state = 'blocked'
        order by message.id limit 1
    ) as id
    from (
        select distinct turn.group_key
        from {given} straight_join {turns} as turn force index (primary) on turn.id = given.id
    ) as noted
    where not exists (
        select 1 from {queue} as there where there.front = noted.group_key and there.in_run >= 0
    )
    limit 1000000
) as next
where not exists (
    select 1 from {queue} as held where held.front = next.group_key and held.in_run > -next.id
);
update ignore {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = case when due_at > {now} then 'scheduled' else 'ready' end
where state = 'blocked';
delete {turns} from {given} straight_join {turns} force index (primary) on {turns}.id = given.id;
