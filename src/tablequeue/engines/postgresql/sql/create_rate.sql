-- The rate of a queue that limits how many messages are claimed, in one row that each claim locks. `step`: microseconds
-- between two messages; `burst`: how many may be claimed at once. `spent_until`: the time when `burst` of them may be
-- claimed again. A claim of n messages moves it by n steps, from now on if it is past.
-- Runs in one transaction: a crash leaves nothing.
create table {rate} (
    step bigint not null,
    burst bigint not null,
    spent_until timestamptz not null default '1970-01-01 00:00:00+00'
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
insert into {rate} (step, burst) values ({step}, {burst});
