-- What the claims of a queue with limits for each group lock: a claim locks the stripe of a group, which is that of all
-- groups with the same remainder of their slot, and counts afterwards. So two claims never count the messages of a
-- group at the same time. The index serves that count.
-- Runs in one transaction: a crash leaves nothing.
create table {stripes} (stripe int not null constraint pk_{table}__stripes primary key clustered);
alter table {stripes} set (lock_escalation = disable);
insert into {stripes} (stripe)
select top ({last_stripe} + 1) row_number() over (order by (select null)) - 1
from sys.all_columns as one cross join sys.all_columns as other;
create index {table}__working on {queue} (slot, lease_until) include (state) where state = 'in_progress';
