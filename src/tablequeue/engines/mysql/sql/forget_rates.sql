-- Delete the rates of up to :n groups of which a whole burst may be claimed again: a row of the past means what no row
-- means. Find them, in @tq_ids, and delete them, in one transaction.
-- Index: {table}__spent. Locks: the rows; locked ones are skipped, as those of a claim in a caller's transaction. A
-- claim that comes meanwhile waits for the end of the transaction, and adds its row again.
select slot as id from {group_rates} force index ({table}__spent)
where spent_until <= {now} order by spent_until limit :n
for update skip locked;
delete {group_rates}
from json_table(:ids, '$[*]' columns (slot bigint path '$')) as given
straight_join {group_rates} force index (primary) on {group_rates}.slot = given.slot;
