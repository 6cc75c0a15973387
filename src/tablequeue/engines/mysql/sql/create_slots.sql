-- The places of a queue that limits how many messages are in progress: a row for each. A claim notes in a place the
-- message that it has claimed and its token. The place is free again when that message is no longer in progress under
-- that token. So nothing that finishes a message frees a place, and a crash occupies none for good.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {slots} (
    slot int not null auto_increment primary key,
    message bigint not null default 0,
    token char(32) character set ascii collate ascii_bin not null default ''
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: slots of {table}';
insert into {slots} (slot)
with recursive place (slot) as (
    select 1
    union all
    select slot + 1 from place where slot < {concurrency}
)
select slot from place;
