-- What the claims of a queue with limits for each group lock: a claim locks the stripe of a group, which is that of all
-- groups with the same remainder of their slot. So two claims never count the messages of a group at the same time.
-- `claims`: how many claims there were. If it is as it was in a snapshot, nobody has claimed since, and what that
-- snapshot counts is exact. The index serves the count of the messages of a group in progress.
-- The pages are filled to a tenth, so that an update stays on its page, and does not touch the index.
-- Runs in one transaction: a crash leaves nothing.
create table {stripes} (
    stripe integer constraint {table}__stripe primary key,
    claims bigint not null default 0
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
insert into {stripes} (stripe) select n from generate_series(0, {last_stripe}) as n;
analyze {stripes};
create index {table}__working on {queue} ({slot}, id) where state = 'in_progress';
