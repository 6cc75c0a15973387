-- What a fair queue has in addition: an index over the ready messages, by the slot of their group. The slot is a hash
-- of 63 bits: two of 3,000,000 groups share one with a chance of one in 2,000,000.
-- A crash before the end leaves tables that are not in the catalogue: see create.
alter table {queue}
    add column waiting tinyint generated always as (case when {indexed} then 1 end) stored,
    add column slot bigint generated always as (
        cast(conv(left(md5(coalesce(group_key, '')), 16), 16, 10) as unsigned) >> 1
    ) stored,
    add key {table}__ready (waiting, {ready_index});
