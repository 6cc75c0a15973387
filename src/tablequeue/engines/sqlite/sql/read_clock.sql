-- The database's clock. Locks: none.
select {now};
