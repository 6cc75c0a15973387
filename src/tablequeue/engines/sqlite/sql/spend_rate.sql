-- Spend the rate of :number messages, which the transaction has claimed.
-- Index: none, it is one row. In one transaction with the claim: after a crash nothing is spent.
update {rate}
set spent_until = max(spent_until, {now}) + :number * step;
