-- The rate of a queue that limits how many messages are claimed, in one row that each claim locks. `step`: microseconds
-- between two messages; `burst`: how many may be claimed at once. `spent_until`: the time when `burst` of them may be
-- claimed again. A claim of n messages moves it by n steps, from now on if it is past.
-- Runs in one transaction: a crash leaves nothing.
create table {rate} (
    id int not null constraint pk_{table}__rate primary key clustered,
    step bigint not null,
    burst bigint not null,
    spent_until datetime2(6) not null
);
insert into {rate} values (1, {step}, {burst}, '1970-01-01');
