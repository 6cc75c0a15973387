-- The schedules of periodic pushes: for each, the last time it was due that was pushed. Made with the first schedule.
-- The advisory lock lets one creator at a time through, as in install. A crash leaves nothing.
select pg_advisory_xact_lock(8318836321);
create table if not exists {schedules} (
    name text primary key,
    last_due timestamptz not null
);
