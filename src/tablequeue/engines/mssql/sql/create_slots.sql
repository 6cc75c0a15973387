-- The places of a queue that limits how many messages are in progress: a row for each. A claim notes in a place the
-- message that it has claimed and its token. The place is free again when that message is no longer in progress under
-- that token. So nothing that finishes a message frees a place, and a crash occupies none for good.
-- A place with a negative number is closed: nobody claims into it. While its message is in progress, one of the other
-- places is not free either. See close_slots and resize_slots.
-- Runs in one transaction: a crash leaves nothing.
create table {slots} (
    slot bigint not null constraint pk_{table}__slots primary key clustered,
    message bigint not null constraint df_{table}__slots_message default 0,
    token uniqueidentifier not null constraint df_{table}__slots_token default newid()
);
alter table {slots} set (lock_escalation = disable);
insert into {slots} (slot)
select top ({concurrency}) row_number() over (order by (select null))
from sys.all_columns as one cross join sys.all_columns as other;
