-- The creators' lock: one at a time makes or upgrades tables in a database, until its transaction ends; the number is
-- tablequeue's own. CREATE ... IF NOT EXISTS alone fails when two run at once.
select pg_advisory_xact_lock(8318836321);
