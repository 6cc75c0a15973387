-- Delete the rates of up to :n groups of which a whole burst may be claimed again: a row of the past means what no row
-- means. Index: {table}__spent. Locks: the database, for the length of the statement.
delete from {group_rates}
where slot in (select slot from {group_rates} where spent_until <= {now} order by spent_until limit :n);
