-- The places of a queue that limits how many messages are in progress: a row for each. A claim notes in a place the
-- message that it has claimed and its token. The place is free again when that message is no longer in progress under
-- that token. So nothing that finishes a message frees a place, and a crash occupies none for good.
-- A product of two numbers below 100, because MariaDB limits a recursion to 1,000 steps.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {slots} (
    slot int not null auto_increment primary key,
    message bigint not null default 0,
    token char(32) character set ascii collate ascii_bin not null default ''
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: slots of {table}';
insert into {slots} (slot)
with recursive some (n) as (
    select 0
    union all
    select n + 1 from some where n < 99
)
select 100 * one.n + other.n + 1
from some as one cross join some as other
where 100 * one.n + other.n < {concurrency};
