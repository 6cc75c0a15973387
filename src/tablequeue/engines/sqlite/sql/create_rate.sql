-- The rate of a queue that limits how many messages are claimed, in one row that each claim locks. `step`: microseconds
-- between two messages; `burst`: how many may be claimed at once. `spent_until`: the time when `burst` of them may be
-- claimed again. A claim of n messages moves it by n steps, from now on if it is past.
-- Runs in one transaction: a crash leaves nothing.
create table {rate} (
    step integer not null,
    burst integer not null,
    spent_until integer not null default 0
) strict;
insert into {rate} (step, burst) values ({step}, {burst});
