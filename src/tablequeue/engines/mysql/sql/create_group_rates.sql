-- The rate of each group of a queue that limits how many messages of a group are claimed: a row for each group that has
-- spent some of it, by its slot. `spent_until`: as in create_rate. A row of the past means what no row means, so it can
-- be deleted. Whoever changes a row has locked the stripe of the group.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {group_rates} (
    slot bigint not null primary key,
    spent_until datetime(6) not null,
    key {table}__spent (spent_until)
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: group_rates of {table}';
