-- Delete up to :n keys whose time is over: find them, in @tq_ids, and delete them.
-- Index: {table}__keys_until. Locks: the rows; locked rows are skipped, as those that a push renews in its transaction.
-- In one transaction: a crash leaves all or nothing. As hexadecimal text, because JSON has no bytes.
select hex(dedup_key) as id from {keys} force index ({table}__keys_until)
where taken_until <= {now} order by taken_until limit :n
for update skip locked;
delete {keys}
from json_table(:ids, '$[*]' columns (dedup_key varchar(2040) character set ascii path '$')) as given
straight_join {keys} force index (primary) on {keys}.dedup_key = unhex(given.dedup_key);
