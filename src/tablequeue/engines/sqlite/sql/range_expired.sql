-- Up to :n ranges whose lease has expired. Index: {table}__lease. Locks: the database.
select id from {ranges} where lease_until <= {now} order by lease_until limit :n;
