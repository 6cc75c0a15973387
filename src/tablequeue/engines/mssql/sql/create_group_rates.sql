-- The rate of each group of a queue that limits how many messages of a group are claimed: a row for each group that has
-- spent some of it, by its slot. `spent_until`: as in create_rate. A row of the past means what no row means, so it can
-- be deleted. Whoever changes a row has locked the stripe of the group.
-- Runs in one transaction: a crash leaves nothing.
create table {group_rates} (
    slot bigint not null constraint pk_{table}__group_rates primary key clustered,
    spent_until datetime2(6) not null
);
alter table {group_rates} set (lock_escalation = disable);
create index {table}__spent on {group_rates} (spent_until);
