-- The schedules of periodic pushes: for each, the last time it was due that was pushed. Made with the first schedule.
-- Under the creators' lock. A crash leaves nothing.
create table if not exists {schedules} (
    name text primary key,
    last_due timestamptz not null
);
