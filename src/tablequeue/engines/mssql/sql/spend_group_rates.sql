-- Spend the rates of :by_group for the messages that the transaction has claimed: their slots, with a number for each.
-- It has locked the stripes of these groups. The first statement adds the rows that are missing.
-- Index: the primary key. Locks: the rows. In one transaction with the claim: after a crash nothing is spent.
declare @groups nvarchar(max) = cast(:by_group as nvarchar(max));
declare @now datetime2(6) = {now};
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
