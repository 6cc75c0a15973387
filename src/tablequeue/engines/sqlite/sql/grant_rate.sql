-- How many messages the rate allows now, and the time of that now.
-- Index: none, it is one row. Locks: none; the transaction is the only one that writes.
select burst - (max(0, spent_until - {now}) + step - 1) / step as tokens, {now} as clock
from {rate};
