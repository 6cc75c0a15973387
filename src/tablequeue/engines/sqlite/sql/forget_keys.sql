-- Delete up to :n keys whose time is over.
-- Index: {table}__keys_until. Locks: the rows. A crash leaves all or nothing.
delete from {keys}
where dedup_key in (select dedup_key from {keys} where taken_until <= {now} order by taken_until limit :n)
returning dedup_key;
