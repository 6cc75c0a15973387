-- Up to :n ranges whose lease has expired, with their ids, and those of the messages that have left them.
-- Index: {table}__lease. Locks: the rows; locked rows are skipped.
select id, pieces, left_ids
from {ranges} force index ({table}__lease)
where lease_until <= {now}
order by lease_until
limit :n
for update skip locked;
