-- Up to :n ranges whose lease has expired, with their ids, and those of the messages that have left them.
-- The second statement locks range :id if that is so still, for a packet that sets its messages apart.
-- Index: {table}__lease, the primary key. Locks: the rows; locked rows are skipped.
select id, pieces, left_ids
from {ranges} force index ({table}__lease)
where lease_until <= {now}
order by lease_until
limit :n
for update skip locked;
select id
from {ranges} force index (primary)
where id = :id and lease_until <= {now} and left_ids <=> :left_ids
for update skip locked;
