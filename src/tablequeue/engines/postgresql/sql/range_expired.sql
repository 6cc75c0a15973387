-- Up to :n ranges whose lease has expired. Index: {table}__lease. Locks: the rows; locked rows are skipped.
select id from {ranges} where lease_until <= {now} order by lease_until limit :n for update skip locked;
