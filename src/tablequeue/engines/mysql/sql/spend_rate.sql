-- Spend the rate of :number messages, which the transaction has claimed.
-- Index: the primary key. Locks: the row. In one transaction with the claim: after a crash nothing is spent.
update {rate}
set spent_until = greatest(spent_until, {now}) + interval (:number * step) microsecond
where id = 1 and :number > 0;
