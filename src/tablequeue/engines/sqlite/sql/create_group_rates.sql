-- The rate of each group of a queue that limits how many messages of a group are claimed: a row for each group that has
-- spent some of it, by its slot. `spent_until`: as in create_rate. A row of the past means what no row means, so it can
-- be deleted. Runs in one transaction: a crash leaves nothing.
create table {group_rates} (
    slot text primary key,
    spent_until integer not null
) strict, without rowid;
create index {table}__spent on {group_rates} (spent_until);
