-- Extend the lease on range :id: it ends :lease seconds from now. In one transaction with range_hold.
-- Index: the primary key. Locks: the row.
update {ranges} set lease_until = {now} + interval :lease second where id = :id;
select lease_until from {ranges} where id = :id;
