-- End the leases of the ranges that have messages with an offset from :start on, for a seek that is forced. Their
-- messages are then set apart as if it had expired.
-- Index: {table}__lease. Locks: the rows; locked rows are skipped. In one transaction with range_seek.
update {ranges} set lease_until = {now}
where id = any(array(
    select id from {ranges} where lease_until > {now} and last_offset >= :start for update skip locked
));
