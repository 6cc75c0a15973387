-- Delete the rates of up to :n groups of which a whole burst may be claimed again: a row of the past means what no row
-- means. Index: {table}__spent. Locks: the rows; locked ones are skipped.
-- A claim that comes meanwhile waits for the end of this statement, and adds its row again.
delete from {group_rates}
where slot = any(array(
    select slot from {group_rates} where spent_until <= {now} order by spent_until limit :n for update skip locked
)) and spent_until <= {now};
