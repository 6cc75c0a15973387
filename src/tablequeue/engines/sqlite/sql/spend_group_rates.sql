-- Spend the rates of :by_group for the messages that the transaction has claimed: their slots, with a
-- number for each.
-- Index: the primary key. In one transaction with the claim: after a crash nothing is spent.
insert into {group_rates} as spent (slot, spent_until)
select json_extract(value, '$.slot'), {now} + json_extract(value, '$.number') * {group_step}
from json_each(:by_group)
where true
on conflict (slot) do update
set spent_until = max(spent.spent_until, {now}) + (excluded.spent_until - {now});
