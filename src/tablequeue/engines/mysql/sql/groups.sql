-- Groups: their tables, the heads of ordered groups, the turns of fair ones, claims of one group.

-- name: create_fair
-- What a fair queue has in addition: an index over the ready messages, by the slot of their group. The slot is a hash
-- of 63 bits: two of 3,000,000 groups share one with a chance of one in 2,000,000.
-- A crash before the end leaves tables that are not in the catalogue: see create.
alter table {queue}
    add column waiting tinyint generated always as (case when {indexed} then 1 end) stored,
    add column slot bigint generated always as (
        cast(conv(left(md5(coalesce(group_key, '')), 16), 16, 10) as unsigned) >> 1
    ) stored,
    add key {table}__ready (waiting, {ready_index});

-- name: create_groups
-- The primary key of the table of heads holds that promise: promote enters a message there before it makes it the
-- head, and a trigger deletes the row. A unique index would be checked with a lock on the entry of the next group.
-- The messages of a run are in progress together: in_run is the id of the message if it was claimed in a run, else 0,
-- and such a message is in the table no longer. In an open run it is minus the id: such a message holds up those behind
-- it, and not those before it. So a message becomes the head if no head of its group has an in_run above minus its own
-- id.
-- The table of turns has the notes of the triggers, which promote reads; see create_group_triggers.
-- A crash before the end leaves tables that are not in the catalogue: see create.
alter table {queue}
    add column front varbinary(1020) generated always as (case when {head} then group_key end) stored,
    add column in_run bigint not null default 0,
    add key {table}__front (front, in_run),
    add key {table}__blocked (group_key, state, id);
create table {turns} (
    id bigint not null auto_increment primary key,
    group_key varbinary(1020) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: turns of {table}';
create table {heads} (
    group_key varbinary(1020) not null primary key,
    id bigint not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: heads of {table}';

-- name: create_group_triggers
-- The triggers of a grouped queue note which groups to look at: those that got a message, and those that may have lost
-- their head. They also delete the row of a message that is no head any more, or in a run. They cannot do more, for a
-- trigger may not change the table it belongs to; promote reads the notes.
-- INSERT ... VALUES: an INSERT ... SELECT would lock the ids of the notes until the end of its statement.
-- DELIMITER is for the client programs: there are semicolons inside the triggers.
-- A crash before the end leaves tables that are not in the catalogue: see create.
delimiter //
create trigger {queue}__pushed after insert on {queue} for each row
    insert into {turns} (group_key) values (new.group_key) //
create trigger {queue}__left after delete on {queue} for each row
    if old.state <> 'dead' then
        insert into {turns} (group_key) values (old.group_key);
        if old.front is not null and old.in_run = 0 then
            delete from {heads} where group_key = old.group_key and id = old.id;
        end if;
    end if //
create trigger {queue}__moved after update on {queue} for each row
begin
    if new.state in ('dead', 'blocked') and old.state <> new.state then
        insert into {turns} (group_key) values (new.group_key);
    end if;
    if old.front is not null and old.in_run = 0 and (new.front is null or new.in_run <> 0) then
        delete from {heads} where group_key = old.group_key and id = old.id;
    end if;
end //
delimiter ;

-- name: drop_groups
-- The notes of a grouped queue's triggers, and the heads.
drop table if exists {turns};
drop table if exists {heads};

-- name: claim_ring
-- The first :look ready messages of the groups in a segment of the ring: behind the slot :starts, up to the slot :ends.
-- With ids up to :high if that is given. A claim asks again behind the last group that it has seen.
-- Index: {claim_index}. Locks: none.
select id, slot
from {queue} force index ({claim_index})
where {claimable} and slot > :starts and slot <= :ends and (:high is null or id <= :high)
order by slot, id
limit :look;

-- name: find_in_turn
-- In printed SQL only: what Python does with the rows of claim_ring and claim_rooms, which are in @tq_looked and
-- @tq_rooms. The messages to claim, in the order of the turns, are @tq_wanted. The session remembers which group was
-- served last in the variable @`tablequeue.{table}.ring`, as the procedures do. It begins at a random slot.
-- If the next group has 64 ready messages or more, Python looks again behind it, so that a claim of several has some of
-- each group. This script looks once: such a claim has messages of that group alone. The next one begins behind it.
-- Index: none. Locks: none.
-- name: find_in_turn.begin
set @`tablequeue.{table}.ring` = coalesce(
    @`tablequeue.{table}.ring`, cast(conv(left(md5(uuid()), 16), 16, 10) as unsigned) >> 1
);
-- name: find_in_turn.slots
select json_arrayagg(slot) into @tq_slots
from (
    select distinct slot from json_table(@tq_looked, '$[*]' columns (slot bigint path '$[1]')) as looked
) as found;
-- name: find_in_turn.wanted
select
    -- [group_limited]
    json_arrayagg(json_array(id, slot)) into @tq_wanted
    -- [else]
    json_arrayagg(id) into @tq_wanted
    -- [end]
from (
    select message.id, message.slot
    from (
        select id, slot, row_number() over (partition by slot order by id) as number
        from json_table(@tq_looked, '$[*]' columns (id bigint path '$[0]', slot bigint path '$[1]')) as looked
    ) as message
    -- [group_limited]
    join json_table(@tq_rooms, '$[*]' columns (slot bigint path '$[0]', room bigint path '$[2]')) as given
        on given.slot = message.slot and message.number <= given.room
    -- [end]
    order by message.number, message.slot <= @`tablequeue.{table}.ring`, message.slot
    limit 1000000
) as sorted;

-- name: move_ring
-- In printed SQL only: note which group was served last.
-- Index: the primary key. Locks: none.
set @`tablequeue.{table}.ring` = coalesce((
    select slot
    from (
        select slot, row_number() over (partition by slot order by id) as number
        from (
            -- [at_least_once]
            select message.id, message.slot
            from json_table(@tq_ids, '$[*]' columns (id bigint path '$')) as given
            straight_join {queue} as message force index (primary) on message.id = given.id
            -- [else]
            select message.id, cast(conv(left(md5(coalesce(group_key, '')), 16), 16, 10) as unsigned) >> 1 as slot
            from json_table(@tq_ids, '$[*]' columns (id bigint path '$')) as given
            straight_join {history} as message force index (primary) on message.id = given.id
            -- [end]
            where token = :token
        ) as claimed
    ) as numbered
    order by number desc, slot <= @`tablequeue.{table}.ring` desc, slot desc
    limit 1
), @`tablequeue.{table}.ring`);

-- name: claim_run
-- Claim the next ready message and up to :n - 1 that are blocked behind it in its group, in order of ids, under one
-- lease: lock the first one, find the others without locks, lock those that no other transaction is changing, and mark
-- them. One packet, in which claim_limit comes first: @tq_head is the first one, @tq_run are all that were found,
-- @tq_due the locked messages, each with whether it is due, and @tq_ids the claimed ones: no message after one that
-- another transaction has locked, or that is not due. The run ends before one that is in progress in an open run.
-- With :run 1 no message of the group is promoted while one is in progress, so the group is closed until all of them
-- are finished. With -1 the run is open: see create_groups.
-- The first ready message of a group that is not in :passed comes first, else the first one of all: a claim of an open
-- run passes over the groups that the process claimed from lately.
-- Indexes: {claim_index}, {table}__blocked, {table}__front, the primary key. Locks: the rows; locked ones are skipped.
-- A claim must lock the first message before it claims the others.
-- A crash before the commit claims none. They are read after it: see claimed.
-- name: claim_run.find
select max(id) into @tq_head
from (
    select id
    from {queue} force index ({claim_index})
    where {claimable} and @tq_n > 0 and not json_contains(:passed, json_quote(convert(group_key using utf8mb4)))
    order by id
    limit 1
    for update skip locked
) as first;
select coalesce(@tq_head, max(id)) into @tq_head
from (
    select id
    from {queue} force index ({claim_index})
    where {claimable} and @tq_n > 0 and @tq_head is null
    order by id
    limit 1
    for update skip locked
) as first;
select json_merge_preserve(json_array(@tq_head), coalesce(json_arrayagg(id), '[]')) into @tq_run
from (
    select id, row_number() over (order by id) as place
    from (
        select message.id
        from {queue} as head straight_join {queue} as message force index ({table}__blocked)
            on message.group_key = head.group_key
        where head.id = @tq_head and message.state = 'blocked'{in_time_of_message}
            and message.id < (
                select coalesce(-max(held.in_run), 9223372036854775807)
                from {queue} as held force index ({table}__front)
                where held.front = head.group_key and held.in_run < 0
            )
        order by message.id
        limit :n
    ) as behind
) as numbered
where place < @tq_n;
select json_arrayagg(json_array(id, is_due)) into @tq_due
from (
    select message.id, coalesce(due_at <= {now}, true) as is_due
    from json_table(@tq_run, '$[*]' columns (id bigint path '$')) as given
    straight_join {queue} as message force index (primary) on message.id = given.id
    where state in ('ready', 'blocked')
    for update skip locked
) as locked;
select json_arrayagg(due.id), count(*) into @tq_ids, @tq_n
from json_table(@tq_due, '$[*]' columns (id bigint path '$[0]', is_due int path '$[1]')) as due
where due.id = @tq_head or due.id < coalesce((
    select min(behind.id)
    from json_table(@tq_run, '$[*]' columns (id bigint path '$')) as behind
    left join json_table(@tq_due, '$[*]' columns (id bigint path '$[0]', is_due int path '$[1]')) as got
        on got.id = behind.id
    where behind.id <> @tq_head and (got.id is null or not got.is_due)
), 9223372036854775807);
-- name: claim_run.change
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = :popped_at,
    first_popped_at = coalesce(first_popped_at, :popped_at),
    lease_until = :lease_until,
    in_run = message.id * :run
where state in ('ready', 'blocked');

-- name: claimed
-- The messages of :ids that a claim has claimed under :token. They are read after its commit, so that nothing is locked
-- while they are sent. If messages are delivered at most once, they are in the history.
-- Index: the primary key. Locks: none.
-- [at_least_once]
select
    {claimed with
        id = message.id}{and_slot}
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where token = :token;
-- [else]
select
    {claimed with
        id = message.id
        lease_until = cast(null as datetime(6))}
-- [at_most_once fair]
    , cast(conv(left(md5(coalesce(group_key, '')), 16), 16, 10) as unsigned) >> 1 as slot
-- [at_most_once]
from {given} straight_join {history} as message force index (primary) on message.id = given.id
where token = :token;
-- [end]

-- name: claim_alone
-- Claim up to :n ready messages of the group with the slot :slot under a new lease, in order of ids after :after, if no
-- group with another slot has anything ready; else none. Lock them; claim_many marks them, and they are read after the
-- commit: see claimed. For queues without limits that deliver at least once.
-- Index: {claim_index}, by the slot: one look into it on either side of :slot. Locks: the rows; rows that another claim
-- has locked are skipped. A crash before the commit claims none.
select id
from {queue} force index ({claim_index})
where {claimable} and slot = :slot and id > :after
    and not exists (select 1 from {queue} force index ({claim_index}) where waiting = 1 and slot < :slot)
    and not exists (select 1 from {queue} force index ({claim_index}) where waiting = 1 and slot > :slot)
order by slot, id
limit :n
for update skip locked;

-- name: claim_group
-- Lock them, then mark them. They are read after the commit: see claimed.
-- Index: {claim_index}, by the slot of the group; another group may have the same slot. Then the primary key.
-- Locks: the rows; rows that another claim has locked are skipped. A crash before the commit claims none.
-- name: claim_group.lock
select id
from {queue} force index ({claim_index})
where {claimable} and slot = cast(conv(left(md5(:group), 16), 16, 10) as unsigned) >> 1
    and group_key = :group
order by slot, id
limit :n
for update skip locked;
-- name: claim_group.change
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = :popped_at,
    first_popped_at = coalesce(first_popped_at, :popped_at),
    lease_until = :lease_until
where {indexed};

-- name: promote
-- In up to :n groups that the triggers have noted, the lowest blocked message becomes the head, if there is none, and
-- if it is not behind a message of an open run (see create_groups).
-- The statements: find notes; lock those that are not locked; choose the lowest message of each of their groups that
-- has no head; lock these messages, and reserve the places of heads for them; look which of them have a place, and
-- whether their group is closed by a run that began after the first look (since the place is theirs, no other run can
-- begin before the commit); make those heads whose group is open. Where there are others: give_back gives the places of
-- closed groups back, and note_again keeps a note of each message that another transaction has locked: it is passed
-- over, so that no group waits for that transaction, which leaves no note if it is rolled back. Then delete the notes.
-- The limit in the third one keeps MariaDB from merging the inner query into the outer one. Merged, it fails in a
-- procedure from the second call on: "unknown column noted.group_key".
-- IGNORE: if two transactions promote in the same group at once, the primary key refuses one head, which is skipped.
-- It hides no other error, because nothing else can fail here.
-- Indexes: {table}__front, {table}__blocked, the primary keys. Locks: the notes and the messages (locked ones are
-- skipped), the new heads. A place waits for another promotion in its group.
-- A crash leaves all or nothing: groups that were not promoted are still noted.
-- name: promote.find
select id from {turns} order by id limit :n;
-- name: promote.lock
select turn.id
from {given} straight_join {turns} as turn force index (primary) on turn.id = given.id
for update skip locked;
-- name: promote.choose
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
    limit 1000000
) as next
where not exists (
    select 1 from {queue} as held where held.front = next.group_key and held.in_run > -next.id
);
-- name: promote.reserve
insert ignore into {heads} (group_key, id)
select message.group_key, message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where message.state = 'blocked'
for update skip locked;
-- name: promote.reserved
select message.id, head.id as head, exists (
    select 1 from {queue} as there force index ({table}__front)
    where there.front = message.group_key and there.in_run <> 0 and there.in_run > -message.id
) as closed
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
left join {heads} as head force index (primary) on head.group_key = message.group_key;
-- name: promote.advance
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = case when due_at > {now} then 'scheduled' else 'ready' end
where state = 'blocked';
-- name: promote.give_back
delete {heads}
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
straight_join {heads} force index (primary) on {heads}.group_key = message.group_key;
-- name: promote.note_again
insert into {turns} (group_key)
select message.group_key
from {given} straight_join {queue} as message force index (primary) on message.id = given.id;
-- name: promote.forget
delete {turns} from {given} straight_join {turns} force index (primary) on {turns}.id = given.id;
