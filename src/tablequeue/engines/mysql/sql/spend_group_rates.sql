-- Spend the rates of :by_group for the messages that the transaction has claimed: their slots, with a
-- number for each. It has locked the stripes of these groups.
-- Index: the primary key. Locks: the rows. In one transaction with the claim: after a crash nothing is spent.
insert into {group_rates} (slot, spent_until)
select slot, {now} + interval (number * {group_step}) microsecond
from json_table(:by_group, '$[*]' columns (slot bigint path '$.slot', number bigint path '$.number')) as given
on duplicate key update
    spent_until = greatest({group_rates}.spent_until, {now}) + interval (number * {group_step}) microsecond;
