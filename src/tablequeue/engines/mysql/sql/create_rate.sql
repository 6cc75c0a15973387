-- The rate of a queue that limits how many messages are claimed, in one row that each claim locks. `step`: microseconds
-- between two messages; `burst`: how many may be claimed at once. `spent_until`: the time when `burst` of them may be
-- claimed again. A claim of n messages moves it by n steps, from now on if it is past.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {rate} (
    id int not null primary key,
    step bigint not null,
    burst bigint not null,
    spent_until datetime(6) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: rate of {table}';
insert into {rate} values (1, {step}, {burst}, '1970-01-01');
