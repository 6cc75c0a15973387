-- The places of a queue that limits how many messages are in progress: a row for each. A claim notes in a place the
-- message that it has claimed and its token. The place is free again when that message is no longer in progress under
-- that token. So nothing that finishes a message frees a place, and a crash occupies none for good.
-- A place with a negative number is closed: nobody claims into it. While its message is in progress, one of the other
-- places is not free either. See close_slots and resize_slots.
-- The pages are filled to a tenth, so that an update stays on its page, and does not touch the index.
-- Runs in one transaction: a crash leaves nothing.
create table {slots} (
    slot bigint constraint {table}__slot primary key,
    message bigint not null default 0,
    token uuid not null default gen_random_uuid()
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
insert into {slots} (slot) select n from generate_series(1, {concurrency}) as n;
analyze {slots};
