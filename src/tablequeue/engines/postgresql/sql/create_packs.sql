-- The packs of a queue: a claim of many messages that were not claimed before is one row with their columns as arrays,
-- in the order of the ids, instead of a changed row for each. Meanwhile the messages are not in the queue's table. A
-- pack is completed as a whole, or unpacked: then its messages are back in the table, in progress under the same token.
-- The view has them one by one, as they would be in the table.
-- Not compressed, and few dead rows: each may have a megabyte elsewhere.
-- Runs in one transaction: a crash leaves nothing.
create table {packs} (
    token uuid primary key,
    consumer text,
    popped_at timestamptz not null,
    lease_until timestamptz not null,
    size integer not null,
    first_id bigint not null,
    last_id bigint not null,
    ids bigint[] not null,
    priorities integer[] not null,
    pushed_ats timestamptz[] not null,
    due_ats timestamptz[] not null,
    producers text[] not null,
    headers json[] not null,
    payloads {payload_type}[] not null
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 100,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 10000,
    toast.autovacuum_vacuum_cost_delay = 0
);
alter table {packs}
    alter ids set storage external,
    alter priorities set storage external,
    alter pushed_ats set storage external,
    alter due_ats set storage external,
    alter producers set storage external,
    alter headers set storage external,
    alter payloads set storage external;
create index {table}__packs_lease on {packs} (lease_until);
create view {packed} as
select
    message.id, 'in_progress' as state, 1 as attempts, message.priority, pack.token, message.pushed_at, message.due_at,
    pack.popped_at as first_popped_at, pack.popped_at, pack.lease_until, cast(null as text) as group_key,
    cast(null as text) as dedup_key, message.producer, pack.consumer, message.headers, cast(null as jsonb) as errors,
    message.payload, pack.first_id, pack.last_id
from {packs} as pack, {pack_messages};
