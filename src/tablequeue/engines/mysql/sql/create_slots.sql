-- The places of a queue that limits how many messages are in progress: a row for each. A claim notes in a place the
-- message that it has claimed and its token. The place is free again when that message is no longer in progress under
-- that token. So nothing that finishes a message frees a place, and a crash occupies none for good.
-- A place with a negative number is closed: nobody claims into it. While its message is in progress, one of the other
-- places is not free either. See close_slots and resize_slots.
-- The numbers are made of digits, because servers limit a recursion to 1,000 steps.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {slots} (
    slot bigint not null auto_increment primary key,
    message bigint not null default 0,
    token char(32) character set ascii collate ascii_bin not null default ''
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: slots of {table}';
insert into {slots} (slot)
with digit (n) as (
    select 0 union all select 1 union all select 2 union all select 3 union all select 4
    union all select 5 union all select 6 union all select 7 union all select 8 union all select 9
), place (slot) as (
    select one.n + 10 * ten.n + 100 * hundred.n + 1000 * thousand.n + 1
    from digit as one, digit as ten, digit as hundred, digit as thousand
)
select slot from place where slot <= {concurrency};
