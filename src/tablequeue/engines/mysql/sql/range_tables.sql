-- The tables and functions of a subscription's ranges of the log.

-- name: create_ranges
-- A range with a lease_until is in progress. `left_ids` are the messages that have left it, the last at finished_at:
-- completed before the others; or detached, and in `apart_ids`, too. A range that is finished has no left_ids.
-- When its lease expires, the messages that have not left it are detached, without being in `apart_ids`.
-- `pieces` are the ids of its messages in the order of the offsets, as JSON: [[first, last], ...].
-- The id is that of the last range plus one. Of two claims at once, one gets a duplicate key and begins again.
-- Under the creators' lock. A crash before the end leaves tables that are not in the catalogue: see create.
create table {ranges} (
    id bigint not null primary key,
    first_offset bigint not null,
    last_offset bigint not null,
    messages int not null,
    ids_sum bigint not null,
    pieces longtext not null,
    token char(32) character set ascii collate ascii_bin,
    consumer varchar(255),
    popped_at datetime(6) not null,
    lease_until datetime(6),
    finished_at datetime(6),
    left_ids longtext,
    apart_ids longtext,
    unique key {table}__token (token),
    key {table}__lease (lease_until)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: ranges of {table}';
insert into {ranges} (id, first_offset, last_offset, messages, ids_sum, pieces, popped_at, finished_at)
values (1, :start, :start - 1, 0, 0, '[]', {now}, {now});
