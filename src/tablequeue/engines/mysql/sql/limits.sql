-- Limits of messages in progress and of rates: the tables, and what a claim locks and writes there.

-- name: create_slots
-- The places of a queue that limits how many messages are in progress: a row for each. A claim notes in a place the
-- message that it has claimed and its token. The place is free again when that message is no longer in progress under
-- that token. So nothing that finishes a message frees a place, and a crash occupies none for good.
-- A place with a negative number is closed: nobody claims into it. While its message is in progress, one of the other
-- places is not free either. See close_slots and resize_slots.
-- The numbers are made of digits, because servers limit a recursion to 1,000 steps.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {slots} (
    slot bigint not null auto_increment primary key,
    message bigint not null default 0,
    token char(32) character set ascii collate ascii_bin not null default ''
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: slots of {table}';
insert into {slots} (slot)
with digit (n) as (
    select 0 union all select 1 union all select 2 union all select 3 union all select 4
    union all select 5 union all select 6 union all select 7 union all select 8 union all select 9
), place (slot) as (
    select one.n + 10 * ten.n + 100 * hundred.n + 1000 * thousand.n + 1
    from digit as one, digit as ten, digit as hundred, digit as thousand
)
select slot from place where slot <= {concurrency};

-- name: create_rate
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {rate} (
    id int not null primary key,
    step bigint not null,
    burst bigint not null,
    spent_until datetime(6) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: rate of {table}';
insert into {rate} values (1, {step}, {burst}, '1970-01-01');

-- name: create_stripes
-- What the claims of a queue with limits for each group lock: a claim locks the stripe of a group, which is that of all
-- groups with the same remainder of their slot. So two claims never count the messages of a group at the same time.
-- `claims`: how many claims there were. If it is as it was in a snapshot, nobody has claimed since, and what that
-- snapshot counts is exact. The index serves the count of the messages of a group in progress.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {stripes} (
    stripe int not null primary key,
    claims bigint not null default 0
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: stripes of {table}';
insert into {stripes} (stripe)
with recursive some (n) as (
    select 0
    union all
    select n + 1 from some where n < 31
)
select 32 * one.n + other.n from some as one cross join some as other;
alter table {queue}
    add column working tinyint generated always as (case when state = 'in_progress' then 1 end) stored,
    add key {table}__working (working, slot);

-- name: create_group_rates
-- Whoever changes a row has locked the stripe of the group.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {group_rates} (
    slot bigint not null primary key,
    spent_until datetime(6) not null,
    key {table}__spent (spent_until)
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: group_rates of {table}';

-- name: grant_rate
-- It waits for other claims. Index: the primary key. Locks: the row, until the transaction ends.
select
    greatest(0, burst - ceiling(greatest(0, timestampdiff(microsecond, {now}, spent_until)) / step)) as tokens,
    {now} as clock
from {rate}
where id = 1
for update;

-- name: lock_slots
-- Lock up to :n of the places that were free. One whose note has changed since the look may have been filled.
-- Index: the primary key. Locks: the rows, until the transaction ends; locked rows are skipped.
select place.slot
from json_table(:slots, '$[*]' columns (
    slot int path '$[0]', message bigint path '$[1]',
    token char(32) character set ascii collate ascii_bin path '$[2]'
)) as free
straight_join {slots} as place force index (primary)
    on place.slot = free.slot and place.message = free.message and place.token = free.token
limit :n
for update skip locked;

-- name: lock_seen_slots
-- As lock_slots, in a caller's transaction, with whether each is as it was seen: the lock of another one would stay.
-- Index: the primary key. Locks: the rows, until the transaction ends; locked rows are skipped.
select place.slot, place.message = free.message and place.token = free.token
from json_table(:slots, '$[*]' columns (
    slot int path '$[0]', message bigint path '$[1]',
    token char(32) character set ascii collate ascii_bin path '$[2]'
)) as free
straight_join {slots} as place force index (primary) on place.slot = free.slot
limit :n
for update skip locked;

-- name: note_slots
-- Index: the primary key. Locks: the rows. In one transaction with the claim: after a crash none is noted.
update json_table(:places, '$[*]' columns (slot int path '$.slot', message bigint path '$.message')) as noted
straight_join {slots} as place force index (primary) on place.slot = noted.slot
set place.message = noted.message, place.token = :token;

-- name: spend_rate
-- Index: the primary key. Locks: the row. In one transaction with the claim: after a crash nothing is spent.
update {rate}
set spent_until = greatest(spent_until, {now}) + interval (:number * step) microsecond
where id = 1 and :number > 0;

-- name: spend_group_rates
-- It has locked the stripes of these groups. Index: the primary key. Locks: the rows. In one transaction with the
-- claim: after a crash nothing is spent.
insert into {group_rates} (slot, spent_until)
select slot, {now} + interval (number * {group_step}) microsecond
from json_table(:by_group, '$[*]' columns (slot bigint path '$.slot', number bigint path '$.number')) as given
on duplicate key update
    spent_until = greatest({group_rates}.spent_until, {now}) + interval (number * {group_step}) microsecond;

-- name: resize_slots
-- Messages in progress keep theirs: a place that is one too many is closed until its message is finished.
-- Locks: all places, until the transaction ends; it waits for the claims that have locked some. Runs in one
-- transaction: a crash leaves the places as they were.
select slot from {slots} for update;
delete place from {slots} as place
where (place.slot < 0 or place.slot > {concurrency}) and not exists (
    select 1 from {queue} as message force index (primary)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
);
update {slots} set slot = -message where slot > {concurrency};
insert ignore into {slots} (slot)
with digit (n) as (
    select 0 union all select 1 union all select 2 union all select 3 union all select 4
    union all select 5 union all select 6 union all select 7 union all select 8 union all select 9
), place (slot) as (
    select one.n + 10 * ten.n + 100 * hundred.n + 1000 * thousand.n + 1
    from digit as one, digit as ten, digit as hundred, digit as thousand
)
select slot from place where slot <= {concurrency};

-- name: change_rate
-- Index: none, it is one row. Locks: the row; it waits for claims. A crash leaves the rate as it was.
update {rate}
set spent_until = {now} + interval ceiling({step} * least(
        {burst}, greatest(0, timestampdiff(microsecond, {now}, spent_until)) / step
    )) microsecond,
    step = {step},
    burst = {burst};

-- name: drop_stripes
-- Commits by itself; what a crash leaves, the next drop of this name drops.
drop table if exists {stripes};

-- name: forget_rate
-- Find the row, in @tq_ids, and change it, in one transaction. Index: the primary key.
-- Locks: the row; a locked one is skipped, as that of a claim in a caller's transaction.
-- name: forget_rate.lock
select id from {rate}
where id = 1 and spent_until > {now} + interval (burst * step + 60000000) microsecond
for update skip locked;
-- name: forget_rate.change
update json_table(:ids, '$[*]' columns (id int path '$')) as given
straight_join {rate} as rate force index (primary) on rate.id = given.id
set rate.spent_until = {now};

-- name: forget_rates
-- Find them, in @tq_ids, and delete them, in one transaction.
-- Index: {table}__spent. Locks: the rows; locked ones are skipped, as those of a claim in a caller's transaction. A
-- claim that comes meanwhile waits for the end of the transaction, and adds its row again.
-- name: forget_rates.lock
select slot as id from {group_rates} force index ({table}__spent)
where spent_until <= {now} or spent_until > {now} + interval ({group_burst} * {group_step} + 60000000) microsecond
order by spent_until
limit :n
for update skip locked;
-- name: forget_rates.change
delete {group_rates}
from json_table(:ids, '$[*]' columns (slot bigint path '$')) as given
straight_join {group_rates} force index (primary) on {group_rates}.slot = given.slot;

-- name: claim_rooms
-- Of each group of :slots the number of claims of its stripe, how many of its messages may be claimed, and the seconds
-- until one may. A message that the claim :removes needs no place.
-- Indexes: the primary keys, {table}__working. Locks: none.
select
    room.slot, room.claims, room.room,
    case when room.room > 0 then 0 else greatest(
        -- [per_group]
        timestampdiff(microsecond, {now}, coalesce((
            select min(sweep_at) from {queue} force index ({table}__working) where working = 1 and slot = room.slot
        ), {now} + interval 1 second)) / 1e6 * (room.places <= 0),
        -- [end]
        -- [group_rate]
        (greatest(0, timestampdiff(microsecond, {now}, room.spent_until)) - ({group_burst} - 1) * {group_step}) / 1e6,
        -- [end]
        0, 0
    ) end as seconds
from (
    select
        counted.*,
        least(
            -- [group_rate]
            {group_burst} - ceiling(greatest(0, timestampdiff(microsecond, {now}, spent_until)) / {group_step}),
            -- [end]
            places, places
        ) as room
    from (
        select
            given.slot, stripe.claims,
            -- [per_group]
            case when :removes then 2147483647 else {per_group} - (
                select count(*) from {queue} as message force index ({table}__working)
                where message.working = 1 and message.slot = given.slot
            ) end as places
            -- [else]
            2147483647 as places
            -- [end]
            -- [group_rate]
            , coalesce((
                select rate.spent_until from {group_rates} as rate where rate.slot = given.slot
            ), '1970-01-01') as spent_until
            -- [end]
        from json_table(:slots, '$[*]' columns (slot bigint path '$')) as given
        straight_join {stripes} as stripe force index (primary) on stripe.stripe = given.slot & {last_stripe}
    ) as counted
) as room;

-- name: lock_stripes
-- Lock the stripes of :by_group: triples of a slot, the number of claims that was seen, and the room. If that number
-- has changed, what was counted may be out of date: such a group is left out.
-- Index: the primary key. Locks: the rows, until the transaction ends; locked rows are skipped.
select given.slot, given.claims, given.room
from json_table(:by_group, '$[*]' columns (
    slot bigint path '$[0]', claims bigint path '$[1]', room bigint path '$[2]'
)) as given
straight_join {stripes} as stripe force index (primary)
    on stripe.stripe = given.slot & {last_stripe} and stripe.claims = given.claims
for update skip locked;

-- name: lock_seen_stripes
-- As lock_stripes, in a caller's transaction, with whether each has the number of claims that was seen. The lock of one
-- that has not would stay.
-- Index: the primary key. Locks: the rows, until the transaction ends; locked rows are skipped.
select given.slot, given.claims, given.room, stripe.claims = given.claims
from json_table(:by_group, '$[*]' columns (
    slot bigint path '$[0]', claims bigint path '$[1]', room bigint path '$[2]'
)) as given
straight_join {stripes} as stripe force index (primary) on stripe.stripe = given.slot & {last_stripe}
for update skip locked;

-- name: note_stripes
-- Count a claim in the stripes of :slots, which the transaction has locked.
-- Index: the primary key. Locks: the rows. In one transaction with the claim: after a crash none is counted.
update (
    select distinct slot & {last_stripe} as stripe
    from json_table(:slots, '$[*]' columns (slot bigint path '$')) as given
) as noted
straight_join {stripes} as stripe force index (primary) on stripe.stripe = noted.stripe
set stripe.claims = stripe.claims + 1;

-- name: free_slots
-- Up to :look of the places whose message is no longer in progress, with their notes. A look without locks, before the
-- claim begins. At random, so that claims at once do not look for the same ones.
-- As many of the free places as closed ones are occupied are passed over, the first ones. Claims that look at different
-- times agree: each leaves so many free places below those that it takes.
-- Index: the primary key. Locks: none.
select slot, message, token
from {slots} as place
where not exists (
    select 1 from {queue} as message force index (primary)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
) and slot >= case
    when exists (select 1 from {slots} where slot < 0) then (
        select min(numbered.slot)
        from (
            select place.slot, row_number() over (order by place.slot) as number
            from {slots} as place
            where place.slot > 0 and not exists (
                select 1 from {queue} as message force index (primary)
                where message.id = place.message and message.token = place.token and message.state = 'in_progress'
            )
        ) as numbered
        where numbered.number > (
            select count(*)
            from {slots} as closed
            straight_join {queue} as message force index (primary)
                on message.id = closed.message and message.token = closed.token
            where closed.slot < 0 and message.state = 'in_progress'
        )
    )
    else 1
end
order by rand()
limit :look;

-- name: claim_held
-- In the packet of a claim with limits for each group: the messages of :rows, pairs of an id and a slot, whose stripes
-- @tq_held are locked, in the same order.
-- Locks: none.
select json_arrayagg(id) into @tq_found
from (
    select wanted.id
    from json_table(:rows, '$[*]' columns (
        number for ordinality, id bigint path '$[0]', slot bigint path '$[1]'
    )) as wanted
    join json_table(@tq_held, '$[*]' columns (slot bigint path '$')) as held on held.slot = wanted.slot
    order by wanted.number
    limit 1000000
) as sorted;

-- name: claim_counts
-- In the packet of a claim with limits: what it notes of the messages @tq_ids that it has locked. In each of the places
-- @tq_slots that it has locked one of them; how many of each group; and the slots of these.
-- Index: the primary key. Locks: none.
-- [concurrency]
select json_arrayagg(json_object('slot', place.slot, 'message', message.id)) into @tq_places
from json_table(@tq_slots, '$[*]' columns (number for ordinality, slot int path '$')) as place
join json_table(@tq_ids, '$[*]' columns (number for ordinality, id bigint path '$')) as message
    on message.number = place.number;
-- [end]
-- [group_limited]
select json_arrayagg(json_object('slot', slot, 'number', number)), json_arrayagg(slot) into @tq_groups, @tq_stripes
from (
    select message.slot, count(*) as number
    from json_table(@tq_ids, '$[*]' columns (id bigint path '$')) as given
    straight_join {queue} as message force index (primary) on message.id = given.id
    group by message.slot
) as spending;
-- [end]

-- name: claim_limit
-- How many messages a claim may claim, if no limit allows fewer, and its time. In the packet of a claim.
-- Locks: none.
select :n, {now} into @tq_n, @tq_now;

-- name: close_slots
-- Find the closed places whose message is no longer in progress, in @tq_ids, and remove them, in one transaction.
-- Index: the primary keys, {table}__state. Locks: the places; locked ones are skipped, and no message is locked. A
-- DELETE with this condition would lock the messages, and wait for an application that has finished one in its
-- transaction.
-- A crash leaves all or nothing.
-- name: close_slots.lock
select place.slot as id from {slots} as place force index (primary)
where place.slot < 0 and not exists (
    select 1 from {queue} as message force index (primary)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
)
for update skip locked;
-- name: close_slots.change
delete place
from json_table(:ids, '$[*]' columns (slot bigint path '$')) as given
straight_join {slots} as place force index (primary) on place.slot = given.slot;
insert ignore into {slots} (slot, message, token)
select -message.id, message.id, message.token
from {queue} as message
where message.state = 'in_progress' and not exists (
    select 1 from {slots} as place where place.message = message.id and place.token = message.token
);
