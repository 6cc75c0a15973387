-- Limits of messages in progress and of rates: the tables, and what a claim locks and writes there.

-- name: create_slots
-- The places of a queue that limits how many messages are in progress: a row for each. A claim notes in a place the
-- message that it has claimed and its token. The place is free again when that message is no longer in progress under
-- that token. So nothing that finishes a message frees a place, and a crash occupies none for good.
-- A place with a negative number is closed: nobody claims into it. While its message is in progress, one of the other
-- places is not free either. See close_slots and resize_slots.
-- Runs in one transaction: a crash leaves nothing.
create table {slots} (
    slot bigint not null constraint pk_{table}__slots primary key clustered,
    message bigint not null constraint df_{table}__slots_message default 0,
    token uniqueidentifier not null constraint df_{table}__slots_token default newid()
);
alter table {slots} set (lock_escalation = disable);
insert into {slots} (slot)
select top ({concurrency}) row_number() over (order by (select null))
from sys.all_columns as one cross join sys.all_columns as other;

-- name: create_rate
-- Runs in one transaction: a crash leaves nothing.
create table {rate} (
    id int not null constraint pk_{table}__rate primary key clustered,
    step bigint not null,
    burst bigint not null,
    spent_until datetime2(6) not null
);
insert into {rate} values (1, {step}, {burst}, '1970-01-01');

-- name: create_stripes
-- What the claims of a queue with limits for each group lock: a claim locks the stripe of a group, which is that of all
-- groups with the same remainder of their slot, and counts afterwards. So two claims never count the messages of a
-- group at the same time. The index serves that count.
-- Runs in one transaction: a crash leaves nothing.
create table {stripes} (stripe int not null constraint pk_{table}__stripes primary key clustered);
alter table {stripes} set (lock_escalation = disable);
insert into {stripes} (stripe)
select top ({last_stripe} + 1) row_number() over (order by (select null)) - 1
from sys.all_columns as one cross join sys.all_columns as other;
create index {table}__working on {queue} (slot, lease_until) include (state) where state = 'in_progress';

-- name: create_group_rates
-- Whoever changes a row has locked the stripe of the group. Runs in one transaction: a crash leaves nothing.
create table {group_rates} (
    slot bigint not null constraint pk_{table}__group_rates primary key clustered,
    spent_until datetime2(6) not null
);
alter table {group_rates} set (lock_escalation = disable);
create index {table}__spent on {group_rates} (spent_until);

-- name: grant_rate
-- It waits for other claims. Index: the primary key. Locks: the row, until the transaction ends.
select
    case
        when spent_until > @now then burst - (datediff_big(microsecond, @now, spent_until) + step - 1) / step
        else burst
    end as tokens,
    convert(varchar(33), @now, 126) as clock
from {rate} with (rowlock, updlock, readcommittedlock)
where id = 1;

-- name: lock_slots
-- Find the places whose message is no longer in progress, and lock up to :n of them. The second statement compares the
-- notes: a place whose note has changed since the first one may have been filled.
-- The first statement may not skip a message that another transaction has locked: it is still in progress. Without
-- READ_COMMITTED_SNAPSHOT it waits until that one ends.
-- Index: the primary keys. Locks: the places, until the transaction ends; locked ones are skipped.
-- Of the closed places, those whose message is in progress: as many free ones, the first, are passed over.
declare @closed bigint = (
    select count(*)
    from {slots} as closed with (rowlock, readcommittedlock)
    where closed.slot < 0 and exists (
        select 1 from {queue} as message with (forceseek)
        where message.id = closed.message and message.token = closed.token and message.state = 'in_progress'
    )
);
declare @free table (slot bigint not null primary key, message bigint not null, token uniqueidentifier not null);
insert into @free (slot, message, token)
select place.slot, place.message, place.token
from {slots} as place with (rowlock, readpast, readcommittedlock)
where place.slot > 0 and not exists (
    select 1 from {queue} as message with (forceseek)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
);
delete from @free where slot in (select top (@closed) slot from @free order by slot);
select top (@n) place.slot
from @free as free
inner loop join {slots} as place with (rowlock, readpast, updlock, readcommittedlock)
    on place.slot = free.slot and place.message = free.message and place.token = free.token
option (force order);

-- name: note_slots
-- Index: the primary key. Locks: the rows. In one transaction with the claim: after a crash none is noted.
update place
set message = noted.message, token = @token
from {slots} as place with (rowlock, forceseek)
join openjson(@places) with (slot int, message bigint) as noted on place.slot = noted.slot;

-- name: spend_rate
-- Index: the primary key. Locks: the row. In one transaction with the claim: after a crash nothing is spent.
update {rate}
set spent_until = dateadd(
    microsecond, cast(@number * step - @number * step / 60000000 * 60000000 as int), dateadd(
        minute, cast(@number * step / 60000000 as int), case when spent_until > @now then spent_until else @now end
    )
)
where id = 1;

-- name: spend_group_rates
-- It has locked the stripes of these groups. The first statement adds the rows that are missing.
-- Index: the primary key. Locks: the rows. In one transaction with the claim: after a crash nothing is spent.
declare @groups nvarchar(max) = cast(:by_group as nvarchar(max));
insert into {group_rates} (slot, spent_until)
select given.slot, @now
from openjson(@groups) with (slot bigint, number bigint) as given
where not exists (
    select 1 from {group_rates} as rate with (rowlock, updlock, readcommittedlock) where rate.slot = given.slot
);
update rate
set spent_until = dateadd(
    microsecond, cast(given.number * {group_step} - given.number * {group_step} / 60000000 * 60000000 as int), dateadd(
        minute, cast(given.number * {group_step} / 60000000 as int),
        case when rate.spent_until > @now then rate.spent_until else @now end
    )
)
from openjson(@groups) with (slot bigint, number bigint) as given
inner loop join {group_rates} as rate with (rowlock, forceseek) on rate.slot = given.slot;

-- name: resize_slots
-- Messages in progress keep theirs: a place that is one too many is closed until its message is finished.
-- Locks: all places, until the transaction ends; it waits for the claims that have locked some. Runs in one
-- transaction: a crash leaves the places as they were.
declare @last bigint = {concurrency};
update {slots} with (rowlock, readcommittedlock) set message = message;
delete place
from {slots} as place
where (place.slot < 0 or place.slot > @last) and not exists (
    select 1 from {queue} as message with (forceseek)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
);
update {slots} set slot = -message where slot > @last;
insert into {slots} (slot)
select number.slot
from (
    select top ({concurrency}) row_number() over (order by (select null)) as slot
    from sys.all_columns as one cross join sys.all_columns as other
) as number
where not exists (select 1 from {slots} as place where place.slot = number.slot);

-- name: change_rate
-- Index: none, it is one row. Locks: the row; it waits for claims. A crash leaves the rate as it was.
declare @wait bigint = (
    select cast(ceiling({step} * case
        when spent_until <= @now then 0.0
        when datediff_big(microsecond, @now, spent_until) >= 1.0 * step * {burst} then 1.0 * {burst}
        else cast(datediff_big(microsecond, @now, spent_until) as float) / step
    end) as bigint)
    from {rate}
    where id = 1
);
update {rate}
set spent_until = dateadd(
        microsecond, cast(@wait - @wait / 60000000 * 60000000 as int), dateadd(
            minute, cast(@wait / 60000000 as int), @now
        )
    ),
    step = {step},
    burst = {burst}
where id = 1;

-- name: drop_stripes
-- In one transaction with the queue: a crash leaves all or nothing.
drop table if exists {stripes};

-- name: forget_rate
-- Index: the primary key. Locks: the row; a locked one is skipped.
update {rate} with (rowlock, readpast, updlock, readcommittedlock)
set spent_until = @now
output inserted.spent_until
where id = 1 and spent_until > @now and datediff_big(microsecond, @now, spent_until) > burst * step + 60000000;

-- name: forget_rates
-- Index: {table}__spent. Locks: the rows; locked ones are skipped.
-- A claim that comes meanwhile waits for the end of this statement, and adds its row again.
declare @late bigint = cast({group_burst} as bigint) * {group_step} + 60000000;
with over_rates as (
    select top (@n) slot, spent_until
    from {group_rates} with (index ({table}__spent), rowlock, readpast, updlock, readcommittedlock)
    where spent_until <= @now or spent_until > dateadd(
        microsecond, cast(@late - @late / 60000000 * 60000000 as int), dateadd(
            minute, cast(@late / 60000000 as int), @now
        )
    )
    order by spent_until
)
delete from over_rates
output deleted.slot;

-- name: close_slots
-- Remove the closed places whose message is no longer in progress. Index: the primary keys, {table}__in_progress.
-- Locks: the rows. A crash leaves some of it for the next time.
declare @first bigint = 0;
delete place
from {slots} as place with (rowlock, readcommittedlock)
where place.slot < @first and not exists (
    select 1 from {queue} as message with (forceseek)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
);
insert into {slots} with (rowlock) (slot, message, token)
select @first - message.id, message.id, message.token
from {queue} as message with (readcommittedlock)
where message.state = 'in_progress'
    and not exists (
        select 1 from {slots} as place with (readcommittedlock)
        where place.message = message.id and place.token = message.token
    )
    and not exists (select 1 from {slots} as place with (readcommittedlock) where place.slot = -message.id);
