-- Spend the rates of :groups for the messages that the transaction has claimed: pairs of a slot and a number.
-- Index: the primary key. In one transaction with the claim: after a crash nothing is spent.
insert into {group_rates} as spent (slot, spent_until)
select json_extract(value, '$[0]'), {now} + json_extract(value, '$[1]') * {group_step}
from json_each(:groups)
where true
on conflict (slot) do update
set spent_until = max(spent.spent_until, {now}) + (excluded.spent_until - {now});
