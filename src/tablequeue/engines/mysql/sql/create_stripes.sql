-- What the claims of a queue with limits for each group lock: a claim locks the stripe of a group, which is that of all
-- groups with the same remainder of their slot. So two claims never count the messages of a group at the same time.
-- `claims`: how many claims there were. If it is as it was in a snapshot, nobody has claimed since, and what that
-- snapshot counts is exact. The index serves the count of the messages of a group in progress.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {stripes} (
    stripe int not null primary key,
    claims bigint not null default 0
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: stripes of {table}';
insert into {stripes} (stripe)
with recursive some (n) as (
    select 0
    union all
    select n + 1 from some where n < 31
)
select 32 * one.n + other.n from some as one cross join some as other;
alter table {queue}
    add column working tinyint generated always as (case when state = 'in_progress' then 1 end) stored,
    add key {table}__working (working, slot);
