-- The database's clock. Locks: none.
select {now} as now;
